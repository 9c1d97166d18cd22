"""Classic environments of verifiers for test_verifiers.py, and the library's own runner of scripted answers.

    PYTHON verifiers_worlds.py '[[kind, row, [[answer, ...], ...]], ...]'

An answer is a text or [[tool, arguments], ...]. It prints (reward, metrics) of every episode.
"""

import asyncio
import json
import sys

import verifiers as vf
from datasets import Dataset
from openai import AsyncOpenAI
from verifiers.legacy.clients.openai_chat_completions_client import OpenAIChatCompletionsClient

ROWS = [{"question": f"{number} + 3?", "answer": str(number + 3)} for number in range(12)]


def text_of(completion):
    return next((one.content or "" for one in reversed(completion) if one.role == "assistant"), "")


def right(completion, answer):
    return float(text_of(completion) == answer)


async def short(completion):
    return 1 / (1 + len(text_of(completion)))


def raises(completion):
    raise ValueError("a reward function's own mistake scores 0 in verifiers")


def shortest(completions) -> list:
    lengths = [len(text_of(one)) for one in completions]
    return [float(length == min(lengths)) for length in lengths]


async def won(state):
    return float(state.get("final_env_response") is not None)


def add(a: int, b: int) -> int:
    """Add two numbers.

    Args:
        a: the first.
        b: the second.
    """
    if b > 90:
        raise ValueError("too much")
    return a + b


class Guess(vf.MultiTurnEnv):
    async def env_response(self, messages, state, **kwargs):
        if text_of(messages) == "crash":
            return {}["no such key"]
        hit = text_of(messages) == state["answer"]
        reply = [vf.UserMessage(content="right" if hit else "try again")]
        if hit:
            state["final_env_response"] = reply
        return reply


def load_environment(kind="single", fail=False):
    if fail:
        raise OSError("its data are not here")
    data, tests = Dataset.from_list(ROWS), Dataset.from_list([*ROWS[:2], {"question": "9 + 9?", "answer": "18"}])
    weighed = vf.Rubric(funcs=[right, short, raises], weights=[1.0, 0.5, 2.0])
    if kind == "tool":
        return vf.ToolEnv(dataset=data, tools=[add], rubric=weighed, max_turns=3)
    if kind == "multi":
        return Guess(dataset=data, system_prompt="Guess.", rubric=vf.Rubric(funcs=[won], weights=[2.0]), max_turns=3)
    if kind == "group":
        return vf.SingleTurnEnv(dataset=data, rubric=vf.Rubric(funcs=[right, shortest], weights=[1.0, 0.25]))
    return vf.SingleTurnEnv(dataset=data, eval_dataset=tests, rubric=weighed)


class Scripted(OpenAIChatCompletionsClient):
    """Answers from a list."""

    def __init__(self, answers):
        super().__init__(AsyncOpenAI(base_url="http://127.0.0.1:9", api_key="none"))
        self.answers = iter(answers)

    async def get_native_response(self, *args, **kwargs):
        answer, calls = next(self.answers), None
        if isinstance(answer, list):
            tools = [{"name": name, "arguments": json.dumps(arguments)} for name, arguments in answer]
            calls = [{"id": f"call-{n}", "type": "function", "function": tool} for n, tool in enumerate(tools)]
            answer = None
        message = {"role": "assistant", "content": answer, "tool_calls": calls}
        choice = {"index": 0, "finish_reason": "tool_calls" if calls else "stop", "message": message}
        whole = {"id": "x", "created": 1, "model": "m", "object": "chat.completion", "choices": [choice]}
        return vf_completion().model_validate(whole)


def vf_completion():
    from openai.types.chat import ChatCompletion

    return ChatCompletion


async def played(kind, row, scripts):
    env = load_environment(kind)
    row = env.get_dataset()[row]
    if kind == "group":
        states = [await env.rollout(row, Scripted(script), "m", {}) for script in scripts]
        await env.rubric.score_group(states)
        return [[state["reward"], state["metrics"]] for state in states]
    outputs = [await env.run_rollout(row, Scripted(script), "m", {}) for script in scripts]
    return [[output["reward"], output["metrics"]] for output in outputs]


async def main(cases):
    print(json.dumps([await played(*case) for case in cases]))


if __name__ == "__main__":
    asyncio.run(main(json.loads(sys.argv[1])))
