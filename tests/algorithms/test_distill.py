"""On-policy distillation: advantages by hand, what a teacher with hints reads, and the checks before a run."""

import asyncio
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from algorithms.handmade import episode, settings_of
from chat_tokenizers import qwen
from episodes import play_episodes
from rollout.scripted import Countdown, ScriptedEngine

from rl_agents.algorithms import ALGORITHMS, Settings
from rl_agents.chat.template import Dialogue, chat_text, further_text, make_context, with_hint
from rl_agents.data.samples import build_samples, teacher_rows
from rl_agents.data.tasks import stream_seed
from rl_agents.data.trajectory import HINTS, EpisodeSpec, Trajectory
from rl_agents.errors import InputError
from rl_agents.learner.teacher import fill_teacher_logprobs
from rl_agents.rollout.agent_loop import Limits
from rl_agents.trainer.advantage_pipeline import assign_credit
from rl_agents.trainer.resolve import resolve
from rl_agents.trainer.teacher_checks import check_local
from rl_agents.trainer.unused_keys import apply_defaults


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        # lp = -1 everywhere; lp_T = -0.5, -3, -1 on the three sampled tokens: lp_T - lp = 0.5, -2, 0.
        ({}, [0.5, -2.0, 0.0]),
        ({"gamma": 0.5}, [0.5 + 0.5 * -2.0, -2.0, 0.0]),
        ({"teacher_kl": "full", "ref_kl_coef": 0.5}, [0.0, 0.0, 0.0]),
    ],
)
@pytest.mark.parametrize("layout", ["merged", "per_step"])
def test_the_advantage_is_minus_the_reverse_kl(layout: str, keys: dict[str, Any], expected: list[float]) -> None:
    played = [episode(0, [0.0, 1.0], lengths=[1, 2])]
    rows, settings = build_samples(played, layout), settings_of("distill", teacher="x", **keys)
    scores = iter([-0.5, -3.0, -1.0])
    for row in rows:
        row.teacher_logprobs = np.zeros(len(row), np.float32)
        row.teacher_logprobs[row.mask > 0] = [next(scores) for _ in range(int(row.mask.sum()))]
    metrics = assign_credit(ALGORITHMS["distill"], rows, played, settings, {}, 0.0)
    found = np.concatenate([row.advantages[row.mask > 0] for row in rows])  # type: ignore[index]
    assert found == pytest.approx(expected)
    assert metrics["actor/teacher_kl"] == pytest.approx(0.5)
    weights = [row.components.get("ref_kl", row.mask * 0) for row in rows]
    assert all((w == row.mask * settings.ref_kl_coef).all() for w, row in zip(weights, rows, strict=True))


@pytest.mark.parametrize("layout", ["merged", "per_step"])
def test_the_teacher_reads_each_step_with_its_hint(layout: str) -> None:
    """Prompts [10, 11] and [10, 11, 20, 30], responses [20] and [21, 21]; a hint inserts 7 8 before the last id."""
    played = episode(0, [0.0, 1.0], lengths=[1, 2])
    played.facts[HINTS] = [[1, 3, [7, 8, 30]]]
    (rows,) = (build_samples([played], layout),)
    read = [part for row in rows for part in teacher_rows(row)]
    assert [part.input_ids.tolist() for part in read] == [[10, 11, 20], [10, 11, 20, 7, 8, 30, 21, 21]]
    assert [part.mask.tolist() for part in read] == [[0, 0, 1], [0, 0, 0, 0, 0, 0, 1, 1]]
    fill_teacher_logprobs(rows, lambda asked: [-np.arange(len(row), dtype=np.float32) for row in asked])
    found = [row.teacher_logprobs[row.mask > 0].tolist() for row in rows]  # type: ignore[index]
    assert [value for of in found for value in of] == [-2.0, -6.0, -7.0]
    plain = build_samples([episode(0, [0.0, 1.0], lengths=[1, 2])], layout)
    assert [part for row in plain for part in teacher_rows(row)] == plain


class Hinting(Countdown):
    """Gives a hint at the start, another one after the first step, and none from the second on."""

    def reset(self, **options: Any) -> Any:
        observation, info = super().reset(**options)
        return observation, {**info, "hint": "say go"}

    def step(self, action: str) -> Any:
        *rest, info = super().step(action)
        turns = rest[0].endswith("turn 1")
        return *rest, {**info, "hint": "say stop" if turns else ""}


@pytest.mark.parametrize("context", ["append", "window(1)"])
def test_hints_are_read_by_the_teacher_alone(context: str) -> None:
    limits = Limits(max_turns=10, max_response_tokens=20, max_model_len=1000, hints=True)
    policy, engine = make_context(context, qwen()), ScriptedEngine(qwen(), lambda text: "go")

    def played(limits: Limits, make: Any = Hinting) -> Trajectory:
        specs = [EpisodeSpec("task-2", 0, 0, stream_seed(1))]
        return asyncio.run(play_episodes(specs, make, engine, policy, limits)).trajectories[0]

    found, plain = played(limits), played(limits, Countdown)
    assert found.steps == plain.steps and HINTS not in plain.facts, "the policy does not see them"
    assert [step for step, *_ in found.facts[HINTS]] == [0, 1]
    for (number, first, ids), hint in zip(found.facts[HINTS], ("say go", "say stop"), strict=True):
        prompt = found.steps[number].prompt_ids
        read, plain_text = qwen().decode([*prompt[:first], *ids]), qwen().decode(prompt)
        assert hint in read and hint not in plain_text and len(read) - len(plain_text) == len(hint) + 1
    assert not played(limits.for_evaluation(0.0)).facts
    tight = len(found.steps[0].prompt_ids) + len(found.steps[0].response_ids)
    assert HINTS not in played(Limits(1, 2, tight, hints=True)).facts, "without room it reads what the policy reads"


def test_a_hint_stands_at_the_end_of_what_is_read_next() -> None:
    chat = chat_text([{"role": "system", "content": "s"}, {"role": "user", "content": "u"}])
    first = with_hint(Dialogue.start("u", chat), "h")
    assert first.task == first.observation == "u\nh" and '"u\\nh"' in first.chat
    later = Dialogue("u", "o", (("u", "a"),), (1,), chat, further_text([{"role": "tool", "content": "r"}], []))
    found = with_hint(later, "h")
    assert (found.task, found.observation, found.chat) == ("u", "o\nh", chat) and '"r\\nh"' in found.further


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"algo": "distill"}, "distill needs a teacher: set teacher=DIR, or teacher_url=URL"),
        ({"algo": "distill", "teacher": "a", "teacher_url": "b"}, "set one of them"),
        ({"algo": "grpo", "teacher": "a"}, "a teacher has no effect on algo grpo without ref_kl_coef"),
        ({"algo": "distill", "teacher_url": "u", "teacher_kl": "full"}, "teacher_kl=full needs teacher=DIR"),
        ({"algo": "distill", "teacher": "a", "teacher_kl": "full", "ref_kl_coef": 0}, "and ref_kl_coef above 0"),
        ({"algo": "distill", "teacher": "a", "ref_kl_coef": 0.1}, "counts the KL twice"),
        ({"algo": "distill", "teacher_url": "u", "temperature": 0.5}, "temperature=0.5: the log-probabilities of"),
        ({"algo": "grpo", "ref_kl_coef": 0.1}, "has no effect without teacher or teacher_url"),
        ({"algo": "sft", "teacher": "a"}, "it trains on demonstrations"),
    ],
)
def test_contradictions_are_one_line(keys: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        resolve(Settings.from_dict({"env": "guess_numbers", **keys}))


def test_a_full_kl_counts_once_unless_it_is_told_otherwise() -> None:
    """A = 0 in `credit`, so that the component is the whole gradient."""
    settings = Settings.from_dict({"algo": "distill", "teacher": "a", "teacher_kl": "full"})
    apply_defaults(settings, ALGORITHMS["distill"])
    assert settings.ref_kl_coef == 1.0


@pytest.mark.parametrize("full", [False, True])
def test_a_local_teacher_with_other_ids_is_refused(beginner_model_dir: Path, tmp_path: Path, full: bool) -> None:
    other = tmp_path / "teacher"
    shutil.copytree(beginner_model_dir, other)
    keys = {"algo": "distill", "teacher": str(other), "max_model_len": 64}
    settings = Settings.from_dict(keys | ({"teacher_kl": "full", "ref_kl_coef": 1} if full else {}))
    check_local(settings, str(beginner_model_dir))
    file = other / ("config.json" if full else "tokenizer.json")
    data = json.loads(file.read_text(encoding="utf-8"))
    if full:
        data["vocab_size"] += 1
    else:
        words = data["model"]["vocab"]
        first, second = sorted(words, key=words.get)[10:12]
        words[first], words[second] = words[second], words[first]
    file.write_text(json.dumps(data), encoding="utf-8")
    message = "logits of another size" if full else r"another tokenizer than .*: '\S+' is id 10 here and 11 there"
    with pytest.raises(InputError, match=f"teacher={other}: {message}"):
        check_local(settings, str(beginner_model_dir))
    with pytest.raises(InputError, match="teacher=nowhere: no such folder"):
        check_local(Settings.from_dict({**keys, "teacher": "nowhere"}), str(beginner_model_dir))
