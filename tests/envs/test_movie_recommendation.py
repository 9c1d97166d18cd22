"""MovieRecommendation: rules on hand-worked cases, the episode, and the warm-start model."""

import random
from functools import partial

import pytest
from environments import starts, with_keywords

from rl_agents.envs.base import named_env
from rl_agents.envs.movie_recommendation import tasks
from rl_agents.envs.movie_recommendation.demonstrations import STARTER
from rl_agents.envs.preferences import Movie, best_movies, cosine, preference

make = partial(named_env, "movie_recommendation")
starter_play = with_keywords("movie_recommendation", STARTER.demonstrate)

TASK = "5-10-10-11-11-uniform/0042"
started = starts("movie_recommendation", TASK)
SMALL = {key.removeprefix("env."): value for key, value in STARTER.defaults.items() if key.startswith("env.")}
SMALL_TASK = f"{tasks.STARTER_SIZE.name}/0042"


def ask(guess: str = "0.5,0.5,0.5,0.5,0.5", first: str = "Movie_1", second: str = "Movie_2") -> str:
    return f"<interact>\nGuess: {guess}\nQuestion: Would you prefer {first} over {second}?\n</interact>"


def test_rules_by_hand() -> None:
    a, b, c = Movie("a", (10, 0, 3)), Movie("b", (0, 10, 4)), Movie("c", (0, 10, 3))
    assert preference((2, 1, 0), a, b) == "Yes" and preference((1, 2, 0), a, b) == "No"
    assert preference((1, 1, 0), a, b) == "Equal" and preference((1, 1, 1), a, b) == "No"
    assert [m.name for m in best_movies((1, 1, 0), [a, b, c])] == ["a", "b", "c"]
    assert best_movies((0, 0, 1), [a, b, c]) == (b,)
    assert cosine((1, 0), (2, 0)) == 1.0 and cosine((0, 0), (1, 0)) == 0.0
    assert cosine((3, 4), (4, 3)) == pytest.approx(0.96)


def test_a_whole_session_in_the_papers_words() -> None:
    task = tasks.find_task(TASK)
    truth = ",".join(f"{w / 10:g}" for w in task.weights)
    env = started()
    for turn in range(4):
        first, second = task.seen[turn], task.seen[turn + 1]
        observation, reward, terminated, truncated, info = env.step(ask(truth, first.name, second.name))
        assert (reward, terminated, truncated, info["valid"]) == (0.0, False, False, True)
        assert observation.split("\n")[0] == preference(task.weights, first, second)
        assert info["progress"] is (turn == 0)  # the truth at once, and then no gain
        assert info["query"] == f"Would you prefer {first.name} over {second.name}?"
    assert "\n\nFinal Turn:" in observation and all(f"\n{movie.name}: [" in observation for movie in task.unseen)
    assert info["anchor"].endswith(" : recommend") and info["metrics"]["similarity"] == pytest.approx(1.0)
    assert "inside <answer>" in env.answer_instruction and "Movie_11" not in env.answer_instruction
    observation, reward, terminated, truncated, info = env.step(f"<answer>{task.best.name}</answer>")
    assert (observation, reward, terminated, truncated, info["success"]) == ("correct", 1.0, True, False, True)
    assert info["metrics"] == {
        "turns": 5.0, "questions": 4.0, "repeated_questions": 0.0, "similarity": pytest.approx(1.0), "satisfaction": 1.0
    }  # fmt: skip


def test_wrong_recommendations_and_forced_answers() -> None:
    task = tasks.find_task(TASK)
    wrong = next(movie for movie in task.unseen if movie != task.best)
    _, reward, terminated, _, info = started().step(f"<answer>{wrong.name}</answer>")
    assert (reward, terminated, info["success"], info["valid"]) == (0.0, True, False, True)
    assert 0 <= info["metrics"]["satisfaction"] < 1
    for answer in ("Movie_1", "", "Movie_999", "no such movie"):
        _, reward, terminated, _, info = started().step(f"<answer>{answer}</answer>")
        assert (reward, terminated, info["metrics"]["satisfaction"]) == (0.0, True, 0.0)
    env, task = started(), tasks.find_task(TASK)
    env.step(ask())
    assert all(f"{movie.name}: [" in env.answer_instruction for movie in task.unseen)
    assert env.step(f"<answer>{task.best.name}</answer>")[1] == 1.0
    compact = started(SMALL_TASK, **SMALL)
    assert compact.answer_instruction.split()[0] == "best" and len(compact.answer_instruction.split()) == 5


def test_a_vector_as_answer_ends_the_questions() -> None:
    env = started()
    observation, reward, terminated, truncated, info = env.step("<answer>0,0,0,0,1</answer>")
    assert observation.startswith("Final Turn:") and (reward, terminated, truncated) == (0.0, False, False)
    assert info["progress"] is True and info["anchor"].endswith("recommend")
    observation, *_, info = env.step(ask())
    assert "no further question is possible" in observation and not info["valid"]
    _, reward, terminated, _, _ = env.step("<answer>0,0,0,0,1</answer>")  # now a vector is no movie
    assert (reward, terminated) == (0.0, True)


def test_the_turn_limit() -> None:
    env = started(max_turns=7)
    results = [env.step(action) for action in (ask(), "?", "<answer>0,0,0,0,0</answer>" * 2, *["?"] * 4)]
    assert [r[3] for r in results] == [False] * 6 + [True]
    assert ["Final Turn" in r[0] for r in results] == [False] * 5 + [True, False]
    assert not any(r[2] for r in results) and sum(r[1] for r in results) == 0.0
    env = make(max_turns=1)
    observation, _ = env.reset(options={"task_id": TASK})
    assert "Final Turn" in observation
    assert env.step(f"<answer>{tasks.find_task(TASK).best.name}</answer>")[1:4] == (1.0, True, False)


def test_the_starters_demonstrations_are_of_neither_split() -> None:
    assert tasks.find_task("5-10-10-11-11-uniform/spare/000042") != tasks.find_task("5-10-10-11-11-uniform/0042")
    rng = random.Random(0)
    first, second = (starter_play(SMALL_TASK, rng, **SMALL)[0][0] for _ in range(2))
    assert len({first, second, started(SMALL_TASK, **SMALL).reset(options={"task_id": SMALL_TASK})[0]}) == 3
