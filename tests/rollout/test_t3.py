"""T3 in the real agent loop: what it ends, when, with which reward, and what it leaves alone."""

import asyncio
import dataclasses
import json
from functools import cache, partial

import pytest
from episodes import play_episodes
from rollout.scripted import Countdown, ScriptedEngine
from tiny_models import write_sentence_model

from rl_agents.algorithms import Settings
from rl_agents.chat.template import make_context
from rl_agents.data.samples import build_samples
from rl_agents.data.trajectory import EpisodeSpec, Step, Trajectory
from rl_agents.envs.base import named_env
from rl_agents.errors import InputError
from rl_agents.orchestrator.rollout_batch import rollout_metrics, truncation_metrics
from rl_agents.rollout.agent_loop import Limits
from rl_agents.rollout.truncation import ANSWER_INSTRUCTION, Truncation, hashed_ngrams, make_embedder, question_of
from rl_agents.trainer.measure import ready
from rl_agents.trainer.resolve import resolve

# The first guess 123 was answered 0A3B, so that 231 and 312 are left; the secret is 312.
TASK = "3-4-0-3/123/312"
STALL, MOVE, JUNK = "<interact> 213 </interact>", "<interact> 231 </interact>", "<think> 213"
WIN, LOSE = "<answer> 312 </answer>", "<answer> 231 </answer>"
make_game = partial(named_env, "guess_numbers")


@cache
def tokenizer():
    from rl_agents.envs.guess_numbers.demonstrations import STARTER

    return STARTER.build_tokenizer()


def truncation(**keys):
    return Truncation.from_settings(Settings.from_dict({"truncation": "t3", **keys}))


def play(
    actions, rule=None, make_env=lambda: make_game(prompt="compact"), task=TASK, max_turns=10, context="append",
    max_model_len=400, words=None,
):  # fmt: skip
    words = words or tokenizer()
    limits = Limits(max_turns, max_response_tokens=12, max_model_len=max_model_len, truncation=rule)
    turn = (lambda text: text.count("<assistant>") - 1) if context == "append" else None
    said = iter(actions)
    engine = ScriptedEngine(words, lambda text: actions[turn(text)] if turn else next(said))
    specs = [EpisodeSpec(task, 0, 0, seed=5)]
    (trajectory,) = asyncio.run(
        play_episodes(specs, make_env, engine, make_context(context, words), limits)
    ).trajectories
    return trajectory


def outcome(t):
    return t.facts.get("truncation", {}).get("outcome")


def test_the_first_inconsistent_guess_asks_for_the_answer():
    t = play([STALL, WIN], truncation())
    because = {"stalled_turns": [1], "window": 1}
    assert t.facts["truncation"] == {"rule": "t3", "turn": 1, "because": because, "outcome": "answered"}
    assert t.end_cause == "truncated_by_rule: t3 after turn 1, answered"
    assert (t.terminated, t.truncated, t.success, t.episode_return) == (True, False, True, 1.0)
    first, second = t.steps
    assert second.observation == "1A2B\n<answer>" and tokenizer().unk_token_id not in second.prompt_ids
    assert tokenizer().decode(second.prompt_ids).endswith("<user> 1A2B <answer> <assistant>")
    assert second.anchor == "3 of 4 : 231 312\n<answer>"
    assert second.prompt_ids[: len(first.prompt_ids)] == first.prompt_ids
    assert Trajectory.from_json(json.loads(json.dumps(t.to_json()))) == t


def test_consistent_guesses_and_evaluations_are_never_truncated():
    t = play([MOVE, WIN], truncation())
    assert t.end_cause == "terminated" and t.success and "truncation" not in t.facts
    assert t == play([MOVE, WIN])
    limits = Limits(10, 12, 400, truncation=truncation())
    evaluation = limits.for_evaluation(0.5)
    assert (evaluation.truncation, evaluation.temperature, evaluation.max_turns) == (None, 0.5, 10)
    assert play([STALL, STALL, WIN]).end_cause == "terminated"


@pytest.mark.parametrize(
    ("forced", "said"), [(WIN, "answered"), (LOSE, "answered"), (MOVE, "no answer"), (STALL, "no answer"),
                         (JUNK, "no answer")],
)  # fmt: skip
def test_exactly_one_more_turn_is_scored_like_any_other(forced, said):
    t = play([STALL, forced, WIN, WIN], truncation())
    assert (len(t.steps), outcome(t), t.episode_return, t.success) == (2, said, float(forced == WIN), forced == WIN)
    assert (t.terminated, t.truncated) == (True, False)
    rows = build_samples([t], "merged")
    assert rows[-1].terminated and sum(row.mask.sum() for row in rows) == t.response_tokens


class Dense(Countdown):
    """Pays 1 per step, never moves on, and calls itself solved."""

    def step(self, action):
        self.turn += 1
        return f"turn {self.turn}", 1.0, False, False, {"progress": False, "success": True}


@pytest.mark.parametrize(
    ("after", "rewards", "success", "said"),
    [("zero", [0, 0], False, "return 0"), ("keep_prefix", [1, 1], True, "prefix kept"),
     ("force_answer", [0, 0, 0], False, "no answer")],
)  # fmt: skip
def test_what_becomes_of_step_rewards(after, rewards, success, said):
    rule = truncation(truncation_window=2, truncation_after=after)
    t = play(["231"] * 5, rule, Dense, "task-2")
    assert ([step.reward for step in t.steps], t.success, t.terminated) == (rewards, success, True)
    assert (outcome(t), t.truncated) == (said, False)


@pytest.mark.parametrize(
    ("keys", "actions", "turn"),
    [
        ({"truncation_window": 2}, [STALL, WIN], None),
        ({"truncation_window": 2}, [STALL, STALL, WIN], 2),
        ({"truncation_window": 2}, [STALL, MOVE, STALL, WIN], None),
        ({"truncation_window": 2, "truncation_stall": "cumulative"}, [STALL, MOVE, STALL, WIN], 3),
        ({"truncation_window": 2}, [STALL, JUNK, STALL, WIN], 3),
        ({"truncation_window": 3}, [STALL, STALL, STALL, WIN], 3),
        ({"truncation_window": 1, "truncation_min_turns": 3}, [STALL, STALL, STALL, WIN], 3),
        ({"truncation_window": 1, "truncation_min_turns": 3}, [STALL, JUNK, STALL, WIN], 3),
        ({"truncation_window": 0}, [STALL, WIN], 1),
    ],
)
def test_the_window_fires_after_exactly_k_stalls(keys, actions, turn):
    t = play(actions, truncation(**keys))
    assert t.facts.get("truncation", {}).get("turn") == turn
    assert t.success and len(t.steps) == len(actions)


@pytest.mark.parametrize("name", ["t3", "similarity", "random"])
def test_a_malformed_action_has_the_same_consequences_with_and_without(name):
    def env():
        return make_game(prompt="compact")

    actions = [JUNK, JUNK, JUNK, WIN]
    rule = truncation(truncation=name, truncation_beta=1.0)
    assert play(actions, rule, env) == play(actions, None, env)


def test_the_forced_turn_may_be_the_last_allowed_one():
    own = play([STALL, WIN], truncation(), lambda: make_game(prompt="compact", max_turns=1))
    for t, cause in ((play([STALL, WIN], truncation(), max_turns=1), "max_turns"), (own, "env_truncated")):
        assert (t.end_cause, t.truncated, t.terminated, t.facts.get("truncation")) == (cause, True, False, None)
    won = play([STALL, WIN], truncation(), max_turns=2)
    asked = play([STALL, MOVE], truncation(), lambda: make_game(prompt="compact", max_turns=2))
    assert (outcome(won), won.success) == ("answered", True)
    assert (outcome(asked), asked.terminated, asked.truncated) == ("no answer", True, False)
    whole = play([STALL, WIN], truncation())
    t = play([STALL, WIN], truncation(), max_model_len=len(whole.steps[1].prompt_ids))
    assert (outcome(t), len(t.steps), t.terminated, t.episode_return) == ("no room to answer", 1, True, 0.0)


def test_environments_word_the_instruction_or_leave_it_to_us():
    t = play([STALL, WIN], truncation(), context="window(1)")
    assert "1A2B <answer>" in tokenizer().decode(t.steps[1].prompt_ids) and t.success
    paper = make_game(prompt="paper").answer_instruction
    assert "<answer> and </answer>" in paper
    t = play(["231"] * 3, truncation(), Dense, "task-2")
    assert t.steps[1].observation == f"turn 1\n{ANSWER_INSTRUCTION}"

    class Wordless(Dense):
        answer_instruction = 7

    t = play(["231"] * 3, truncation(), Wordless, "task-2")
    assert (t.end_cause, t.failed) == ("env_garbage: answer_instruction is int, not a str", True)


@pytest.mark.parametrize(
    ("key", "value", "kind"),
    [
        ("progress", "yes", "bool"),
        ("query", 7, "str"),
        ("references", "312", "list of str"),
        ("references", [3], "str"),
    ],
)
def test_what_environments_report_is_checked(key, value, kind):
    class Garbled(Countdown):
        def step(self, action):
            return "x", 0.0, False, False, {key: value}

    end = play(["231"], truncation(), Garbled, "task-2").end_cause
    assert end.startswith(f"env_garbage: info['{key}'] is ") and f", not a {kind} (test_t3.py:" in end


def test_similar_questions_and_random_ones_truncate():
    rule = truncation(truncation="similarity")
    t = play([STALL, STALL, WIN], rule)
    because = {"cosine": pytest.approx(1.0), "like_turn": 1, "threshold": 0.93}
    assert t.facts["truncation"] == {"rule": "similarity", "turn": 2, "because": because, "outcome": "answered"}
    assert play([STALL, MOVE, WIN], rule).end_cause == "terminated"
    assert play([STALL, STALL, WIN], truncation(truncation="similarity", truncation_min_turns=3)).success
    loose = truncation(truncation="similarity", truncation_similarity=0.0)
    assert play([STALL, MOVE, WIN], loose).facts["truncation"]["turn"] == 2
    always = play([MOVE, WIN], truncation(truncation="random", truncation_beta=1.0))
    assert always.facts["truncation"]["turn"] == 1
    some = truncation(truncation="random", truncation_beta=0.3)
    guesses = ["<interact> 312 </interact>"] * 9 + [WIN]
    assert play(guesses, some) == play(guesses, some)
    assert play(guesses, truncation(truncation="random", truncation_beta=0.0)).end_cause == "terminated"


def test_embedders(tmp_path):
    embed = hashed_ngrams
    question = "Is the first letter of the word a vowel?"
    assert embed(question) @ embed("is the FIRST letter of  the word a vowel?") == pytest.approx(1.0)
    assert embed(question) @ embed("Is the first letter of the word a vowel, please?") > 0.85
    assert embed(question) @ embed("How many rooms does the hotel have?") < 0.5
    assert embed("").sum() == 0 and embed(question) @ embed("") == 0
    assert question_of("<think> 1 <interact> </think> <interact> 2 3 </interact>") == "2 3"
    with pytest.raises(InputError, match="neither `ngrams` nor a model folder"):
        make_embedder("no/such/folder")
    with pytest.raises(InputError, match=r"needs sentence-transformers: pip install|cannot be loaded"):
        make_embedder(str(tmp_path))


def test_an_embedder_of_a_folder(tmp_path):
    pytest.importorskip("sentence_transformers", reason="needs the extra similarity")
    embed = make_embedder(write_sentence_model(tmp_path, ["river", "sea", "fox"]))
    assert embed("sea") @ embed("sea") == pytest.approx(1.0) and embed("sea") @ embed("fox") < 0.999


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"truncation": "t4"}, "unknown truncation 't4': did you mean 't3'"),
        ({"truncation": "random", "truncation_stall": "cumulative"}, "no effect without truncation=t3"),
        ({"truncation": "t3", "truncation_beta": 0.5}, "no effect without truncation=random"),
        ({"truncation": "random", "truncation_beta": 1.5}, "must be at most 1"),
        ({"truncation": "similarity", "truncation_embedder": "nowhere"}, "neither `ngrams`"),
        ({"truncation": "t3", "truncation_window": -1}, "must be at least 0"),
        ({"truncation": "t3", "algo": "sft"}, "'truncation' has no effect with algo sft"),
    ],
)
def test_bad_keys_are_named(keys, message):
    with pytest.raises(InputError, match=message):
        ready(Settings.from_dict(keys))


def test_the_window_comes_from_the_environment_or_the_key():
    assert resolve(Settings.from_dict({"truncation": "t3"})).truncation_window == 1
    assert resolve(Settings.from_dict({"truncation": "t3", "truncation_window": 3})).truncation_window == 3
    keys = {"env": "gymnasium:CartPole-v1", "truncation": "t3"}
    with pytest.raises(InputError, match="has no progress rule"):
        truncation(**keys)
    assert truncation(**keys, truncation_window=2).start(0).k == 2


def test_truncation_metrics():
    whole = play([MOVE, WIN])
    whole.steps += [dataclasses.replace(step) for step in whole.steps]
    cut, silent = play([STALL, WIN], truncation()), play([STALL, MOVE], truncation())
    broken = Trajectory("x", 0, 0, 0, failed=True, end_cause="env_error: x")
    metrics = truncation_metrics([whole, cut, silent, broken])
    tokens = 2 * whole.response_tokens - cut.response_tokens - silent.response_tokens
    assert metrics == {
        "truncation/ratio": pytest.approx(2 / 3), "truncation/turn_mean": 1.0, "truncation/success_rate": 0.5,
        "truncation/answered_share": 0.5, "truncation/no_answer_share": 0.5, "truncation/turns_saved": 4.0,
        "truncation/tokens_saved": tokens,
    }  # fmt: skip
    assert rollout_metrics([whole, cut, silent])["end_cause/truncated_by_rule"] == pytest.approx(2 / 3)
    assert truncation_metrics([whole]) == {
        "truncation/ratio": 0.0, "truncation/turns_saved": 0.0, "truncation/tokens_saved": 0.0,
    }  # fmt: skip
    assert "truncation/tokens_saved" not in truncation_metrics([cut])
    assert truncation_metrics([broken]) == {}


def test_training_truncates_and_evaluation_does_not(beginner_model_dir):
    from rl_agents.trainer.algorithm import AgentConfig

    config = AgentConfig().training(
        algo="ppo", model=str(beginner_model_dir), truncation="t3", tasks_per_iteration=8, group_size=4, eval_episodes=8
    )
    agent = config.local().build_algo()
    history = [agent.train()["agent"] for _ in range(2)]
    assert agent.settings.truncation_window == 1
    for metrics in history:
        assert 0 < metrics["truncation/ratio"] < 1
        assert metrics["end_cause/truncated_by_rule"] == metrics["truncation/ratio"]
        assert metrics["actor/grad_norm"] > 0
    cut = [t for t in agent.last_trajectories if "truncation" in t.facts]
    assert all(len(t.steps) - t.facts["truncation"]["turn"] <= 1 and t.terminated for t in cut)
    assert all(isinstance(step, Step) and step.logprobs for t in cut for step in t.steps)
    assert history[-1]["rows/trained_tokens"] == sum(t.response_tokens for t in agent.last_trajectories)
    evaluated = agent.evaluate_policy("test", 64)
    assert not any("truncation" in t.facts or t.end_cause.startswith("t3") for t in evaluated)
    assert any(t.metrics["inconsistent_guesses"] > 1 for t in evaluated)
    agent.stop()
