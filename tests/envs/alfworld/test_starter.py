"""The starter of alfworld: its words, its untrained model, and the player that it imitates."""

from __future__ import annotations

import random
from functools import partial

from environments import with_keywords

from rl_agents.chat.template import Dialogue, make_context
from rl_agents.envs.alfworld import demonstrations, tasks
from rl_agents.envs.alfworld.demonstrations import STARTER, Habits
from rl_agents.envs.alfworld.prompts import STYLES
from rl_agents.envs.base import named_env

make = partial(named_env, "alfworld")
task_ids = with_keywords("alfworld", tasks.task_ids)
demonstrate = with_keywords("alfworld", STARTER.demonstrate)

NO_HABITS = Habits(random_command=0.0, forget=0.0)


def test_the_tokenizer_knows_every_word_of_generated_games() -> None:
    words = set(STARTER.build_tokenizer().get_vocab())
    for task in task_ids("test", size="full")[:12]:
        for observation, action in demonstrate(task, random.Random(task), size="full", prompt="compact"):
            said = set(observation.split()) | set(action.split())
            assert said <= words, (task, said - words)


def test_longest_episodes_fit_the_context() -> None:
    context = make_context("append", STARTER.build_tokenizer())
    longest = 0
    for task in task_ids("train")[:40]:
        env, rng = make(prompt="compact"), random.Random(task)
        observation, info = env.reset(options={"task_id": task})
        dialogue = Dialogue.start(observation)
        for _ in range(int(STARTER.defaults["max_turns"])):
            prompt = context.prompt(dialogue)
            action = STYLES["compact"].response(rng.choice(info["admissible_actions"]))
            response = [*context.template.tokenizer.encode(action, add_special_tokens=False), 2]
            observation, _, terminated, _, info = env.step(action)
            dialogue = dialogue.after(prompt, response, action, observation)
            longest = max(longest, len(prompt) + len(response))
            if terminated:
                break
    assert longest <= STARTER.defaults["max_model_len"]


def test_the_demonstrator_is_beatable() -> None:
    tasks = task_ids("train")[:48]

    def turns(habits: Habits | None) -> int:
        played = [demonstrate(task, random.Random(task), prompt="compact", habits=habits) for task in tasks]
        return sum(len(dialogue) for dialogue in played)

    assert turns(NO_HABITS) < 0.8 * turns(demonstrations.HABITS)
