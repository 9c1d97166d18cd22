"""The environment alfworld: prompts, actions, episodes on both engines, snapshots, options, bad data."""

import json
import random
import tracemalloc
from functools import partial
from pathlib import Path

import pytest
from environments import starts, with_keywords
from games import expert_plays, write_games

from rl_agents.envs.alfworld import tasks
from rl_agents.envs.alfworld.env import AlfworldEnv
from rl_agents.envs.alfworld.prompts import STYLES, compact_text, find_command, read_command
from rl_agents.envs.base import named_env
from rl_agents.rollout.prompting import ReAct

make = partial(named_env, "alfworld")
task_ids = with_keywords("alfworld", tasks.task_ids)

TASK = "small/heat/kitchen-3/17"
started = starts("alfworld", TASK, prompt="compact")


def solution(task_id: str = TASK) -> tuple[str, ...]:
    return tuple(expert_plays(task_id)[1])


@pytest.mark.parametrize("prompt", STYLES)
def test_a_won_game(prompt: str) -> None:
    env = started(prompt=prompt, reward_scale=10.0)
    for command in solution():
        _, reward, terminated, truncated, info = env.step(STYLES[prompt].response(command))
        assert info["valid"] and not truncated
        assert (reward, info["success"]) == ((10.0, True) if terminated else (0.0, False))
    assert terminated
    turns = float(len(solution()))
    assert info["metrics"] == {"turns": turns, "invalid_actions": 0.0, "won_heat": 1.0}
    env.close()


def test_what_is_not_admissible_costs_a_turn_and_is_invalid() -> None:
    env = started(prompt="3spo")
    before = env.view.admissible
    for action in (
        "look",
        "<action>open fridge 9</action>",
        "<action>look</action><action>look</action>",
        "",
        "\ud800",
    ):
        observation, _, _, _, info = env.step(action)
        assert "Nothing happens." in observation
        assert not info["valid"]
        assert env.view.admissible == before
    assert info["metrics"]["invalid_actions"] == 5.0
    assert env.step("<action>look</action>")[4]["valid"]


def test_anchors() -> None:
    places = [command for command in started().view.admissible if command.startswith("go to")]
    by_observation, by_situation = started(), started(anchor="situation")
    assert by_observation.step("jump")[4]["anchor"] == "Nothing happens."
    by_observation.step(places[0])
    assert by_observation.step("jump")[4]["anchor"] == "Nothing happens."
    assert by_observation.step(places[1])[4]["anchor"] == by_observation.view.text
    by_situation.step(places[0])
    here = by_situation.step("jump")[4]["anchor"]
    by_situation.step(places[1])
    assert by_situation.step("jump")[4]["anchor"] != here
    env = started("small/heat/kitchen-3/17", anchor="role")
    said = [env.step(f"<action>{command}</action>")[4]["anchor"] for command in solution("small/heat/kitchen-3/17")]
    assert said[-1].startswith("heat nothing hot") and said[-1].endswith(": move object target")
    assert any(": pick object" in text for text in said) and any(": heat object appliance" in text for text in said)
    assert not any("-" in text.replace("placed-", "") for text in said), "no thing by its own name"


def test_games_are_shared() -> None:
    ids = task_ids("test")[:4]
    started(ids[0]).step("look")
    for task in ids:
        tasks.compiled_game(task)
    tracemalloc.start()
    envs = [started(ids[i % 4]) for i in range(100)]
    for env in envs:
        env.step("look")
    per_env = tracemalloc.get_traced_memory()[0] / len(envs)
    tracemalloc.stop()
    assert per_env < 20_000
    assert tasks.compiled_game.cache_info().maxsize == tasks.KEPT_GAMES


def played(prompt: str) -> AlfworldEnv:
    env = started("small/look/bedroom-2/1", prompt=prompt)
    for command in ("look", "take me away"):
        env.step(STYLES[prompt].response(command))
    return env


ROOM = (
    "-= Welcome to TextWorld, ALFRED! =-\n\nYou are in the middle of a room. Looking quickly around you, you see a bed "
    "1, a desk 1, a drawer 1, a shelf 2, a shelf 1, and a sidetable 1.\n\n"
    "Your task is to: look at pen under the desklamp."
)
COMMANDS = (
    "go to bed 1", "go to desk 1", "go to drawer 1", "go to shelf 1", "go to shelf 2", "go to sidetable 1", "inventory",
    "look",
)  # fmt: skip


def windows(prompt: str) -> tuple[str, str]:
    """The first prompt, and the third with a history of one step."""
    env = played(prompt)
    opening, _ = started("small/look/bedroom-2/1", prompt=prompt).reset(options={"task_id": "small/look/bedroom-2/1"})
    return opening, env.render_window(opening, (("ignored", "ignored"),), STYLES[prompt].turn(env.view))


def test_prompt_of_3spo() -> None:
    opening, window = windows("3spo")
    head = "You are an expert agent operating in the ALFRED Embodied Environment. Your task is to: look at pen under "
    commands = ", ".join(f"'{command}'" for command in COMMANDS)
    tail = (
        f"Your admissible actions of the current situation are: [{commands}].\nNow it's your turn to take an action.\n"
    )
    assert opening.startswith(
        f"{head}the desklamp\nYou are now at step 1 and your current observation is: {ROOM}\n{tail}"
    )
    assert opening.endswith("for current step and present it within <action> </action> tags.")
    steps = (
        "the desklamp\nPrior to this step, you have already taken 2 step(s). Below are the most recent 1 observations "
        "and the corresponding actions you took:\n"
        "[Observation 2: You are in the middle of a room. Looking quickly around you, you see nothing.]\n"
        "[Action 2: take me away]\nYou are now at step 3 and your current observation is: Nothing happens.\n"
    )
    assert window == head + steps + opening[opening.index(tail) :]


def test_prompt_of_steppo() -> None:
    opening, window = windows("steppo")
    assert opening.startswith("You are acting in ALFWorld TextWorld. Choose exactly one command from the provided ")
    assert f"Current Observation\n{ROOM}\nHistory Actions\nNone\nAdmissible Commands\n" in opening
    assert (
        "Current Observation\nNothing happens.\nYour task is to: look at pen under the desklamp.\n"
        "History Actions\n2. take me away\nAdmissible Commands\n" + "\n".join(COMMANDS) + "\nInstructions\n"
    ) in window
    tool = json.loads(opening.partition("Tool Definition\n")[2])
    assert tool["function"]["name"] == "env_step"
    assert '{"name": "env_step", "arguments": {"command": "[one admissible command]"}}' in opening


def test_compact_prompt() -> None:
    opening, window = windows("compact")
    assert opening == "look pen desklamp : bed-1 desk-1 drawer-1 shelf-2 shelf-1 sidetable-1"
    assert window == f"{opening} empty > take : nothing"
    texts = {
        "You arrive at desk 1. On the desk 1, you see a cd 1, and a laptop 2.": "desk-1 cd-1 laptop-2",
        "You arrive at fridge 1. The fridge 1 is closed.": "fridge-1 closed",
        "You open the fridge 1. The fridge 1 is open. In it, you see nothing.": "open fridge-1 open empty",
        "You are facing the desk 1. Next to it, you see nothing.": "facing desk-1",
        "You are not carrying anything.": "not carrying",
        "This is a hot and clean mug 1.": "hot clean mug-1",
        "Well done": "nothing",
    }
    for text, compact in texts.items():
        assert compact_text(text) == compact


def test_windows_keep_what_stands_around_observations() -> None:
    env = ReAct(make(prompt="3spo"))
    task, _ = env.reset(options={"task_id": TASK})
    assert env.render_window(task, (), task) == task
    observation, *_ = env.step("<action>look</action>")
    window = env.render_window(f"{task}\nNotes.", (("", ""),), f"{observation}\nAnswer now.")
    assert window.startswith(task.partition("You are an expert")[0] + "You are an expert")
    assert window.endswith("tags.\nAnswer now.\nNotes.")
    assert "You are now at step 2 and" in window


@pytest.mark.parametrize(
    ("response", "bare", "command"),
    [("<think>a <action>x</action></think> <action> go to\n desk 1 </action>", False, "go to desk 1"),
     ("I go.\n\ngo to desk 1\n ", True, "go to desk 1"), ("<think>go to desk 1", True, None),
     ("<think>x</think> look", True, "look"), ("<action> </action>", False, None),
     ('<tool_call>{"name": "env_step", "arguments": {"command": "look"}}</tool_call>', False, "look"),
     ('<tool_call>{"name": "other", "arguments": {"command": "look"}}</tool_call>', False, None),
     ("<tool_call>look</tool_call>", True, None), ("x" * 5000, True, "x" * 1000), ("a \ud800", True, "a ?")],
)  # fmt: skip
def test_reading(response: str, bare: bool, command: str | None) -> None:
    assert read_command(response, bare) == command


@pytest.mark.parametrize(
    ("text", "command"),
    [(" Go To  Desk 1.", "go to desk 1"), ("put mug 1 in/on desk 1", "move mug 1 to desk 1"),
     ("move cup 1 to desk 1", "put cup 1 in/on desk 1"), ("move mug-1", "move mug 1 to desk 1"),
     ("go desk-1", "go to desk 1"), ("go desk 1", None), ("put mug 2 in desk 1", None)],
)  # fmt: skip
def test_finding(text: str, command: str | None) -> None:
    admissible = ("go to desk 1", "look", "move mug 1 to desk 1", "put cup 1 in/on desk 1")
    assert find_command(text, admissible) == command


def test_every_compact_command_means_one_command() -> None:
    rng = random.Random(3)
    for task in task_ids("test")[:6]:
        env = started(task, prompt="compact")
        for _ in range(25):
            for command in env.view.admissible:
                assert find_command(STYLES["compact"].response(command), env.view.admissible) == command
            if env.step(rng.choice(env.view.admissible))[2]:
                break


def test_trials_without_a_game_are_left_out_and_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = tmp_path / "data"
    names = [f"small/pick/bedroom-{n}/1" for n in (1, 2, 3, 4)]
    missing, unsolvable, sliced, good = sorted(write_games(data / "train", names))
    missing.unlink()
    unsolvable.write_text(json.dumps({**json.loads(unsolvable.read_text()), "solvable": False}))
    sliced.parent.parent.rename(data / "train" / "pick_and_place_simple-AppleSliced-None-Desk-1")
    _, info = make(data=str(data)).reset(seed=0)
    assert info["task_id"] == good.parent.relative_to(data).as_posix()
    said = capsys.readouterr().err
    assert "1 of 4 trials can be used, 1 with movable receptacles or slices excluded, 1 without a game file" in said
    assert said.endswith("1 unsolvable excluded\n") and said.count("\n") == 1
