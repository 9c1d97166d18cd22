"""SituationPuzzles from a folder: AR-Bench's files, and what is wrong with a bad one."""

from __future__ import annotations

import json
import os
from functools import partial
from itertools import pairwise
from pathlib import Path

import pytest
from environments import with_keywords

from rl_agents.envs.base import named_env
from rl_agents.envs.situation_puzzles import rules, tasks
from rl_agents.envs.situation_puzzles.env import SituationPuzzlesEnv
from rl_agents.envs.situation_puzzles.rules import UNKNOWN, YES, rule_reply
from rl_agents.envs.situation_puzzles.tasks import key_questions
from rl_agents.errors import InputError

make = partial(named_env, "situation_puzzles")
task_ids = with_keywords("situation_puzzles", tasks.task_ids)

ROOT = Path(__file__).parents[2]
SHARED = Path(os.environ.get("RL_AGENTS_SHARED_DATA", ROOT.parent / "shared" / "data"))
AR_BENCH = SHARED / "ar_bench" / "data" / "sp"
needs_ar_bench = pytest.mark.skipif(not AR_BENCH.is_dir(), reason="AR-Bench's situation puzzles are not here")


def started(task_id: str, **options: object) -> SituationPuzzlesEnv:
    env = make(**options)
    env.reset(options={"task_id": task_id})
    return env


def asked(env: SituationPuzzlesEnv, question: str) -> str:
    return env.step(f"<interact>{question}</interact>")[0]


def record(**changes: object) -> dict[str, object]:
    leaf = {"value": "v", "key_question": "Did the lamp go out?", "children": []}
    tree = {"value": "root", "key_question": "", "children": [leaf]}
    return {"surface": "A strange scene.", "bottom": "The lamp went out.", "story_tree": tree, **changes}


def without(key: str) -> dict[str, object]:
    return {name: value for name, value in record().items() if name != key}


BAD_RECORDS = [
    (without("surface"), "has no 'surface'"),
    (without("bottom"), "has no 'bottom'"),
    (without("story_tree"), "'story_tree' is no tree"),
    (record(bottom=""), "'bottom' is no text"),
    (record(surface=3), "'surface' is no text"),
    (record(surface="x" * 20_001), "'surface' is no text of 1 to 20000 characters"),
    (record(story_tree={"children": [3]}), "'story_tree' is no tree"),
    (record(story_tree={"children": {}}), "'story_tree' is no tree"),
    (record(story_tree={"children": []}), "has no key_question"),
    (record(story_tree={"key_question": 4, "children": []}), "'key_question' is no text"),
    (["text"], "is a list, not an object"),
]


@pytest.mark.parametrize(("bad", "message"), BAD_RECORDS)
def test_bad_records_are_named_or_left_out(tmp_path: Path, bad: object, message: str) -> None:
    (tmp_path / "train.json").write_text(json.dumps([record(), bad, record()]))
    with pytest.raises(InputError, match=rf"train\.json, item 2: .*{message}.*; env.bad_data=skip") as error:
        task_ids("train", data=str(tmp_path))
    assert "\n" not in str(error.value)
    assert task_ids("train", data=str(tmp_path), bad_data="skip") == ["train/0000", "train/0002"]
    env = started("train/0002", data=str(tmp_path), bad_data="skip")
    assert asked(env, "Did the lamp go out?") == "Yes"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[{]", r"a value cannot be read \(Expecting property name"),
        ("{\n}", "no usable puzzle"),
        ("[]", "no usable puzzle"),
        ("[" * 100_000, "a value cannot be read"),
        (b"\xff\xfe", "not UTF-8"),
    ],
)
def test_bad_files_are_named(tmp_path: Path, text: str | bytes, message: str) -> None:
    (tmp_path / "test.json").write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(InputError, match=rf"test(\.json)?: {message}"):
        task_ids("test", data=str(tmp_path))


def test_missing_data_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such folder"):
        task_ids("train", data=str(tmp_path / "absent"))
    with pytest.raises(InputError, match="no data in it"):
        task_ids("train", data=str(tmp_path))
    (tmp_path / "test.json").write_text(json.dumps([record()]))
    assert started("test/0000", data=str(tmp_path)).step("<answer>lamp</answer>")[1] > 0
    with pytest.raises(InputError, match="unknown situation_puzzles task 'test/0001'"):
        started("test/0001", data=str(tmp_path))


def test_a_changed_file_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "train.json"
    for count in (1, 2):
        path.write_text(json.dumps([record()] * count))
        assert len(task_ids("train", data=str(tmp_path))) == count


@needs_ar_bench
def test_ar_bench_puzzles() -> None:
    sizes = [len(task_ids(split, data=str(AR_BENCH))) for split in ("train", "test")]
    assert sizes == [400, 100]
    records = json.loads((AR_BENCH / "test.json").read_text(encoding="utf-8"))
    puzzles = [tasks.find_puzzle(f"test/{i:04d}", str(AR_BENCH)) for i in range(100)]
    known = [rule_reply(p, q, 0.5).text for p in puzzles for q in p.key_questions]
    foreign = [rule_reply(p, q, 0.5).text for p, o in pairwise(puzzles) for q in o.key_questions]
    assert set(known) == {YES} and foreign.count(UNKNOWN) > 0.97 * len(foreign)
    for puzzle, raw in zip(puzzles, records, strict=True):
        assert set(puzzle.key_questions) == set(raw["key_question"])
        assert rules.f1_score(puzzle.bottom, puzzle.bottom, "word") == 1.0
    observation, _ = make(data=str(AR_BENCH)).reset(options={"task_id": "test/0000"})
    assert observation.endswith(f"Puzzle: {records[0]['surface']}")


def test_key_questions_come_in_the_trees_order() -> None:
    tree = {"children": [{"key_question": "a", "children": [{"key_question": "b"}]}, {"key_question": "c"}]}
    assert key_questions(tree) == ("a", "b", "c")
