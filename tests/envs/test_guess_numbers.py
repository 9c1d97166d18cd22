"""GuessNumbers: rules on hand-worked cases, the episode and the warm-start model."""

from functools import partial

import torch
from environments import starts
from hypothesis import given
from hypothesis import strategies as st

from rl_agents.envs.base import named_env
from rl_agents.envs.guess_numbers import tasks as rules
from rl_agents.envs.guess_numbers.demonstrations import STARTER

make = partial(named_env, "guess_numbers")

TASK = "3-4-0-3/123/312"
started = starts("guess_numbers", TASK)


def test_rules_by_hand() -> None:
    for secret, guess, expected in (
        ("231", "123", (0, 3)), ("231", "241", (2, 0)), ("4321", "1325", (2, 1)), ("345", "345", (3, 0)),
        ("345", "412", (0, 1)),
    ):  # fmt: skip
        assert rules.feedback(secret, guess) == expected
    before = rules.consistent(rules.codes(3, 4), "123", (0, 3))
    assert before == ("231", "312")
    assert rules.consistent(before, "231", (0, 3)) == ("312",)


CODES = st.sampled_from([(3, 4), (3, 5), (4, 4), (4, 5)]).flatmap(
    lambda game: st.tuples(st.just(game), st.lists(st.sampled_from(rules.codes(*game)), min_size=2, max_size=6))
)


@given(CODES)
def test_secret_is_always_a_hypothesis_and_feedback_is_symmetric(case: tuple[tuple[int, int], list[str]]) -> None:
    (a, b), (secret, *guesses) = case
    remaining = rules.codes(a, b)
    for guess in guesses:
        value = rules.feedback(secret, guess)
        remaining = rules.consistent(remaining, guess, value)
        assert secret in remaining
        assert value == rules.feedback(guess, secret)
        assert 0 <= value[0] <= sum(value) <= a
        assert (value == (a, 0)) == (guess == secret)


def test_a_won_game() -> None:
    env = started(prompt="compact")
    observation, reward, terminated, truncated, info = env.step("<interact>213</interact>")
    assert (observation, reward, terminated, truncated) == ("1A2B", 0.0, False, False)
    assert info["progress"] is False and info["anchor"] == "3 of 4 : 231 312"
    observation, *_, info = env.step("<interact>231</interact>")
    assert observation == "0A3B" and info["anchor"] == "3 of 4 : 312"
    observation, reward, terminated, truncated, info = env.step("<answer>312</answer>")
    assert (observation, reward, terminated, truncated, info["success"]) == ("correct", 1.0, True, False, True)
    assert info["metrics"] == {"turns": 3.0, "inconsistent_guesses": 1.0, "hypotheses_left": 1.0}


def test_progress_rules() -> None:
    task = "3-5-1-0/123/145"
    outside = "<interact>321</interact>"
    assert started(task).step(outside)[4]["progress"] is False
    strict, soft = started(task), started(task, progress="shrunk")
    for env in (strict, soft):
        env.step("<interact>145</interact>")
    assert strict.step("<interact>145</interact>")[4]["progress"] is True
    assert soft.step("<interact>145</interact>")[4]["progress"] is True
    assert soft.step("<interact>154</interact>")[4]["progress"] is False
    split = "<interact>412</interact>"  # no hypothesis, but its feedback leaves 312 alone
    assert [started(progress=rule).step(split)[4]["progress"] for rule in ("consistent", "shrunk")] == [False, True]


def test_starter_model_is_small_and_composed() -> None:
    tokenizer = STARTER.build_tokenizer()
    model = STARTER.build_model(tokenizer, 1)
    assert model.num_parameters() < 110_000
    rows = model.get_input_embeddings().weight
    number = {word: rows[tokenizer.convert_tokens_to_ids(word)] for word in ("123", "124", "153", "154")}
    assert torch.allclose(number["123"] - number["124"], number["153"] - number["154"], atol=1e-5)
