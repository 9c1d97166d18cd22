"""PreferenceEstimation: rules on hand-worked cases, and the episode."""

import itertools
from functools import partial

import numpy as np
import pytest
from environments import starts
from rollout.scripted import fires_at

from rl_agents.envs import base, preferences
from rl_agents.envs.base import named_env
from rl_agents.envs.preference_estimation import env as prompts
from rl_agents.envs.preference_estimation import tasks
from rl_agents.envs.preferences import Movie, agreeing, cosine, preference, satisfaction
from rl_agents.errors import InputError

make = partial(named_env, "preference_estimation")

TASK = "5-10-11-uniform/test/0000"
started = starts("preference_estimation", TASK)
SMALL_TASK = "3-10-6-balanced/test/0000"


def ask(guess: str = "0.5,0.5,0.5,0.5,0.5", first: str = "Movie_1", second: str = "Movie_2") -> str:
    return f"<interact>\nGuess: {guess}\nQuestion: Would you prefer {first} over {second}?\n</interact>"


def solution(task_id: str = TASK) -> str:
    task = tasks.find_task(task_id)
    return ",".join(str(weight / (task.levels - 1)) for weight in task.weights)


def test_rules_by_hand() -> None:
    assert preferences.comparison(1, 3, "Yes") == preferences.comparison(3, 1, "No") == (1, 3, 1)
    assert preferences.comparison(1, 3, "Equal") == preferences.comparison(3, 1, "Equal") == (1, 3, 0)
    a, b, c = Movie("a", (10, 0)), Movie("b", (0, 10)), Movie("c", (5, 5))
    weights = np.array([(6, 3), (3, 6), (4, 4)])
    assert agreeing(weights, (a, b, c), [(0, 1, 1), (0, 2, 1), (1, 2, -1)]).tolist() == [[6, 3]]
    assert agreeing(weights, (a, b, c), [(0, 1, 0), (1, 2, 0)]).tolist() == [[4, 4]]
    similarities = [None, 0.70, 0.72, 0.71, 0.69]
    pairs = itertools.pairwise(similarities)
    progress = [preferences.progresses(a, b) for a, b in pairs if b is not None]
    assert fires_at(progress, base.env_spec("preference_estimation").progress_window) == 4
    assert not preferences.progresses(0.7, 0.7)
    assert not preferences.progresses(*(preferences.cosine([x] * 3, (1, 1, 3)) for x in (0.1, 0.3)))  # a rounding error


def test_bad_options_are_named() -> None:
    assert tasks.Setting(3, 27, 6, "balanced").movies == 27  # of sum 7
    with pytest.raises(InputError, match=r"env\.movies is 28: only 27 balanced ones"):
        tasks.Setting(3, 28, 6, "balanced")
    for options in ({"sampling": "minmax"}, {"threshold": 1.0}):
        with pytest.raises(InputError, match=f"env.{next(iter(options))}="):
            make(**options)


def test_a_won_game() -> None:
    env, task = started(), tasks.find_task(TASK)
    *_, info = env.step(ask("0,0,0,0,0"))
    assert info["metrics"]["similarity"] == 0.0 and info["progress"] is True
    observation, reward, terminated, truncated, info = env.step(ask(first="Movie_2", second="Movie_1"))
    assert observation == f"The user's reply to your latest question: {preference(task.weights, *task.movies[1::-1])}."
    assert (reward, terminated, truncated, info["success"], info["progress"]) == (0.0, False, False, False, True)
    assert info["query"] == "Would you prefer Movie_2 over Movie_1?"
    assert info["metrics"] == {
        "turns": 2.0, "similarity": cosine((1,) * 5, task.weights), "questions": 1.0, "repeated_questions": 1.0,
    }  # fmt: skip
    sign = {"Yes": ">", "No": "<", "Equal": "="}[preference(task.weights, *task.movies[:2])]
    assert info["anchor"].endswith(f" : 1{sign}2")
    *_, info = env.step(ask())
    assert info["progress"] is False
    observation, reward, terminated, truncated, info = env.step(f"<answer>{solution()}</answer>")
    assert (observation, reward, terminated, truncated, info["success"]) == ("correct", 1.0, True, False, True)
    assert info["progress"] is True and info["metrics"]["similarity"] == pytest.approx(1.0)


def test_rewards() -> None:
    flat = "<answer>1,1,1,1,1</answer>"
    similarity = cosine((1,) * 5, tasks.find_task(TASK).weights)
    assert started().step(flat)[1] == float(similarity > 0.88)
    assert started().step(flat)[4]["metrics"]["similarity"] == similarity
    assert started(threshold=similarity - 0.01).step(flat)[4]["success"] is True
    assert started(threshold=similarity + 0.01).step(flat)[4]["success"] is False
    for answer in ("1,1", "1,1,1,1,2", "0,0,0,0,0"):
        assert started().step(f"<answer>{answer}</answer>")[1:3] == (0.0, True)


def test_compact_games() -> None:
    env, task = started(SMALL_TASK, prompt="compact"), tasks.find_task(SMALL_TASK)
    one, two = prompts.movie_names(task, "compact")[:2]
    observation = env.step(f"<interact> 2,2,2 {one} {two} </interact>")[0]
    preferred, other = sorted(task.movies[:2], key=lambda movie: -satisfaction(task.weights, movie))
    assert satisfaction(task.weights, preferred) > satisfaction(task.weights, other)
    assert observation == " > ".join("/".join(map(str, movie.scores)) for movie in (preferred, other))
    assert env.step(f"<interact> 2,2,2 {two} {one} </interact>")[0] == observation
    assert env.step(f"<answer> {','.join(map(str, task.weights))} </answer>")[1] == 1.0
