"""What the five families of T3 share: the reading of responses, and answers that are final."""

from typing import Any

import pytest
from environments import starts

from rl_agents.envs.preferences import Question
from rl_agents.envs.stateful import TaggedAction

TASKS = {
    "guess_numbers": "3-4-0-3/123/312", "circuit_decoding": "2-10/test/0000",
    "situation_puzzles": "lighthouse/0/raiders.pigeon.oath.reef",
    "preference_estimation": "5-10-11-uniform/test/0000", "movie_recommendation": "5-10-10-11-11-uniform/0042",
}  # fmt: skip
SMALL = {"movie_recommendation": "3-5-4-5-3-balanced/0042", "preference_estimation": "3-10-6-balanced/test/0000"}


def ask(guess: str = "0.5,0.5,0.5,0.5,0.5", first: str = "Movie_1", second: str = "Movie_2") -> str:
    return f"Guess: {guess}\nQuestion: Would you prefer {first} over {second}?"


BOTH = ["movie_recommendation", "preference_estimation"]
#: Family -> the content of ``<interact>`` -> the question, or the problem in its message.
QUESTIONS: list[tuple[list[str], str, Any]] = [
    (["guess_numbers"], "231", "231"), (["guess_numbers"], " 2 3\n1 ", "231"),
    *((["guess_numbers"], code, "not-a-code") for code in ("23", "235", "220", "")),
    (["circuit_decoding"], "A(1, 0, 1)", "A101"), (["circuit_decoding"], " b ( 1,0,1 ) ", "B101"),
    (["circuit_decoding"], "A 011", "A011"), (["circuit_decoding"], "A(1,0)", "not-a-query"),
    (["circuit_decoding"], "A(1,0,1) B(1,0,1)", "not-a-query"), (["circuit_decoding"], "C(1,0,1)", "unknown-circuit"),
    (["situation_puzzles"], " Was it\n night? ", "Was it\n night?"), (["situation_puzzles"], " ?! ", "no-question"),
    (["situation_puzzles"], "why " * 400, "too-long"),
    (BOTH, ask(), Question((0.5,) * 5, 0, 1)),
    (BOTH, ask("[0,1,0,1,.5]", "Movie_10", "Movie_3"), Question((0, 1, 0, 1, 0.5), 9, 2)),
    (BOTH, "guess: 0,1,0.5,.25,1 QUESTION: would you prefer Movie_3 OVER Movie_10 ?",
     Question((0, 1, 0.5, 0.25, 1), 2, 9)),
    (["preference_estimation"], ask(first="movie_3", second="MOVIE_10"), Question((0.5,) * 5, 2, 9)),
    (["movie_recommendation"], ask(first="movie_1"), "unknown-movie"),
    *((BOTH, ask(guess), "not-a-vector") for guess in ("0.5,0.5", "0.5,0.5,0.5,nan,0.5", "0.5,0.5,0.5,0.5,1.5")),
    (BOTH, ask(first="Movie_11"), "unknown-movie"), (["movie_recommendation"], ask(first="Movie_2"), "unknown-movie"),
    (["preference_estimation"], ask(first="Movie_2"), "same-movie"),
    (BOTH, "Would you prefer Movie_1 over Movie_2?", "not-a-question"),
    (BOTH, "Guess: 0,0,0,0,0\nQuestion: Which is better?", "not-a-question"),
    (BOTH, "Guess: " * 10_000, "not-a-question"),
]  # fmt: skip


def question(env: Any, content: str) -> Any:
    """Return the question, or the problem of a malformed one."""
    asked = env.question(content.strip(), env.state)
    return asked.problem if isinstance(asked, TaggedAction) else asked


@pytest.mark.parametrize(("name", "content", "expected"), [(n, c, e) for names, c, e in QUESTIONS for n in names])
def test_questions(name: str, content: str, expected: Any) -> None:
    env = starts(name, TASKS[name])()
    assert question(env, content) == expected
    _, reward, terminated, truncated, info = env.step(
        f"<think><answer>no</answer></think> <interact>{content}</interact>"
    )
    problem = isinstance(expected, str) and "-" in expected
    assert (reward, terminated, truncated, info["valid"]) == (0.0, False, False, not problem)
    compact = starts(name, TASKS[name], prompt="compact")()
    if problem and expected not in ("not-a-vector", "unknown-movie", "same-movie"):
        assert compact.step(f"<interact>{content}</interact>")[0].startswith(f"invalid {expected}")


@pytest.mark.parametrize("name", BOTH)
def test_compact_questions(name: str) -> None:
    env = starts(name, SMALL[name], prompt="compact")()
    names = env.reset(options={"task_id": SMALL[name]})[0].removeprefix("seen ").split()
    wanted = "5,0,1" if name == "preference_estimation" else "1,0,0.5"
    found = question(env, f"{wanted} {names[2]} {names[4]}")
    assert found == Question((1.0, 0.0, 0.2 if wanted == "5,0,1" else 0.5), 2, 4)
    same = "same-movie" if name == "preference_estimation" else "unknown-movie"
    for content, problem in (
        (f"0,0 {names[0]} {names[1]}", "not-a-vector"), (f"6,0,0 {names[0]} {names[1]}", "not-a-vector"),
        (f"{wanted} {names[0]}", "not-a-question"), (f"{wanted} {names[0]} 0/0/0", "unknown-movie"),
        (f"{wanted} {names[0]} {names[0]}", same),
    ):  # fmt: skip
        assert question(env, content) == problem


@pytest.mark.parametrize("name", TASKS)
@pytest.mark.parametrize(
    ("response", "problem"),
    [("?", "no-action"), ("<interact>231", "no-action"), ("<think> <answer>231</answer> </think>", "no-action"),
     ("<answer>231</answer><answer>312</answer>", "several-actions")],
)  # fmt: skip
def test_responses_without_one_action(name: str, response: str, problem: str) -> None:
    compact, paper = starts(name, TASKS[name], prompt="compact")(), starts(name, TASKS[name])()
    assert compact.step(response)[0].split(" best ")[0] == f"invalid {problem}"
    observation, reward, terminated, truncated, info = paper.step(response)
    assert observation.startswith("Your last response was not valid: found ")
    assert (reward, terminated, truncated, info["valid"], info["progress"]) == (0.0, False, False, False, None)
    assert info["metrics"]["turns"] == 1.0


@pytest.mark.parametrize("name", TASKS)
def test_wrong_answers_end_the_episode_and_are_valid(name: str) -> None:
    for answer in ("", "none", "9999", "1,1", "1," * 9000):
        _, reward, terminated, _, info = starts(name, TASKS[name])().step(f"<answer>{answer}</answer>")
        assert (reward, terminated, info["success"], info["valid"]) == (0.0, True, False, True)


@pytest.mark.parametrize(
    ("name", "one", "other", "anchor"),
    [("situation_puzzles", ["Were there raiders?", "Was it the plague?"], ["Was plague on board?", "Was it raiders?"],
      f"{TASKS['situation_puzzles']} | fact 0: Yes | fact 1: No"),
     ("movie_recommendation", [ask(first="Movie_1", second="Movie_2"), ask(first="Movie_3", second="Movie_4")],
      [ask(first="Movie_4", second="Movie_3"), ask(first="Movie_2", second="Movie_1")], "")],
)  # fmt: skip
def test_state_keys_do_not_depend_on_the_order_or_the_words(
    name: str, one: list[str], other: list[str], anchor: str
) -> None:
    ends = []
    for questions in (one, other):
        env = starts(name, TASKS[name])()
        ends.append([env.step(f"<interact>{asked}</interact>")[4]["anchor"] for asked in questions][-1])
    assert ends[0] == ends[1] != f"{TASKS[name]} : " and anchor in ends[0]
