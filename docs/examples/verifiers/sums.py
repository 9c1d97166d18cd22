"""A classic environment of the library verifiers: add two digits."""

import verifiers as vf
from datasets import Dataset


def right(completion, answer):
    return float(completion[-1].content.split()[-1:] == [answer])


def short(completion):
    return float(len(completion[-1].content.split()) == 1)


def load_environment(digits=5):
    train, test = [], []
    for a in range(digits):
        for b in range(digits):
            part = test if (a + 2 * b) % 5 == 1 else train
            part.append({"question": f"{a} + {b} =", "answer": str(a + b)})
    data = {"dataset": Dataset.from_list(train), "eval_dataset": Dataset.from_list(test)}
    return vf.SingleTurnEnv(**data, rubric=vf.Rubric(funcs=[right, short], weights=[1.0, 0.2]))
