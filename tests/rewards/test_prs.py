"""Progressive reward shaping (section 15)."""

import itertools
from pathlib import Path

import pytest
import yaml

from rl_agents.algorithms import Settings
from rl_agents.envs.base import make_env
from rl_agents.rewards.prs import long_form_reward, progressive_reward, short_form_bleu

RECIPES = Path(__file__).parents[2] / "tune_configs" / "recipes"


@pytest.mark.parametrize(
    ("prediction", "reference", "expected"),
    [("paris", "paris", 1.0), ("new york", "new york", 1.0), ("new york city", "new york city", 1.0),
     ("new york", "new york city", 0.606531), ("york", "new york city", 0.135335),
     ("new york city usa", "new york city", 0.0), ("the new city", "new york city", 0.0), ("", "paris", 0.0),
     ("the", "paris", 0.0), ("paris", "", 0.0), ("paris paris", "paris", 0.0)],
)  # fmt: skip
def test_short_form_bleu(prediction, reference, expected):
    assert short_form_bleu(prediction, reference) == pytest.approx(expected, abs=1e-6)


def test_bleu_of_long_answers_and_several_references():
    assert short_form_bleu("b c d e f", "b c d e g") == pytest.approx((4 / 5 * 3 / 4 * 2 / 3 * 1 / 2) ** 0.25)
    longer = short_form_bleu("b c d e f", "b c d e")
    assert longer == pytest.approx((4 / 5 * 3 / 4 * 2 / 3 * 1 / 2) ** 0.25)  # no brevity penalty, and no bonus
    assert short_form_bleu("The Beatles!", ["stones", "beatles"]) == 1.0
    assert short_form_bleu("x", []) == 0.0


def test_judge_is_asked_only_where_it_matters():
    for process, judge in itertools.product((-1.0, 0.0, 1.0), (0.0, 1.0)):
        matters = long_form_reward(process, 0.0, judge, 0.5) != long_form_reward(process, 0.0, 1.0 - judge, 0.5)
        assert matters is (process >= 1.0)
    assert [long_form_reward(1.0, 0.1, judge, 0.5) for judge in (0.0, 1.0)] == pytest.approx([1.1, 2.6])


@pytest.mark.parametrize(
    ("components", "thresholds", "expected"),
    [([1.1, 0.0], [1.0], 1.6), ([1.1, 0.0, 0.8], [1.0, 0.5], 1.6), ([1.1, 1.0, 0.8], [1.0, 0.5], 2.521033),
     ([1.1, -3.0], [1.0], 1.147426), ([0.9, 5.0, 5.0], [1.0, 0.0], 0.9), ([1.1, -1000.0], [1.0], 1.1),
     ([0.4], [], 0.4), ([1.0, 0.0], [1.0], 1.5)],
)  # fmt: skip
def test_general_form(components, thresholds, expected):
    assert progressive_reward(components, thresholds) == pytest.approx(expected, abs=1e-6)


def test_general_form_needs_one_threshold_fewer():
    with pytest.raises(ValueError, match="2 components need 1 thresholds, got 2"):
        progressive_reward([1.0, 1.0], [1.0, 1.0])


@pytest.mark.parametrize("path", sorted(RECIPES.glob("*_prs.yaml")), ids=lambda path: path.stem)
def test_recipes_ask_for_the_tags_of_their_prompt(path: Path) -> None:
    settings = Settings.from_dict(yaml.safe_load(path.read_text()))
    env = make_env(settings.env, settings.env_options)
    observation, info = env.reset(seed=0)
    prompt = observation + "".join(message["content"] for message in info.get("messages", ()))
    assert settings.prs_tags and all(f"<{tag}>" in prompt and f"</{tag}>" in prompt for tag in settings.prs_tags)
