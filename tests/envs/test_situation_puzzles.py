"""SituationPuzzles: rules by hand, our puzzles, AR-Bench's files, the episode, a judge behind a server."""

import json
import random
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path

import pytest
from environments import starts, with_keywords
from envs.alfworld.games import SHARED_DATA
from loopback import Loopback, loopback, saying
from rollout.scripted import fires_at

from rl_agents.background import wait
from rl_agents.envs import base
from rl_agents.envs.base import env_spec, named_env, read_env_options
from rl_agents.envs.situation_puzzles import SituationPuzzlesOptions, tasks
from rl_agents.envs.situation_puzzles import tasks as rules
from rl_agents.envs.situation_puzzles.demonstrations import STARTER
from rl_agents.envs.situation_puzzles.env import PROMPT, SituationPuzzlesEnv, make_judge
from rl_agents.envs.situation_puzzles.tasks import NO, UNKNOWN, YES, Fact, Puzzle, Reply, key_questions, rule_reply
from rl_agents.errors import InputError
from rl_agents.rollout.env_calls import EnvFailure, call_env

make = partial(named_env, "situation_puzzles")
task_ids = with_keywords("situation_puzzles", tasks.task_ids)

TASK = "lighthouse/0/raiders.pigeon.oath.reef"
started = starts("situation_puzzles", TASK)
SMALL = {key.removeprefix("env."): value for key, value in STARTER.defaults.items() if key.startswith("env.")}
SMALL_TASK = "museum/crown.weighed.loan"
STORY = "A ship full of raiders was looking for the harbour."


def asked(env: SituationPuzzlesEnv, question: str) -> str:
    return env.step(f"<interact>{question}</interact>")[0]


def test_rules_by_hand() -> None:
    # {the, man, hid, a, key} and {a, key, was, hidden}: 2 * 2 / 9
    assert rules.f1_score("The man hid a key!", "a key, was hidden", "word") == pytest.approx(4 / 9)
    assert rules.f1_score("key key key", "key", "word") == pytest.approx(2 / 4)
    assert rules.f1_score("ab a", "ba c", "char") == pytest.approx(4 / 6)
    assert rules.f1_score("Don't", "dont", "word") == 1.0
    assert rules.f1_score("", "key", "word") == rules.f1_score("...", "...", "char") == 0.0
    bell, thief = frozenset({"bell", "stolen"}), frozenset({"bell", "stolen", "thief", "night"})
    assert rules.similarity(bell, thief) == rules.similarity(thief, bell) == pytest.approx(2 / 3)
    assert rules.similarity(bell, bell) == 1.0
    assert rules.similarity(bell, frozenset()) == rules.similarity(frozenset(), frozenset()) == 0.0
    tree = {"children": [{"key_question": "a", "children": [{"key_question": "b"}]}, {"key_question": "c"}]}
    assert key_questions(tree) == ("a", "b", "c")


PUZZLE = Puzzle(
    "p", "surface", "bottom", (Fact(frozenset({"raider", "pirate"}), True), Fact(frozenset({"plague"}), False)),
    ("Was the bell stolen by a jealous rival?", "Did nobody hear the storm?"),
)  # fmt: skip


@pytest.mark.parametrize(
    ("question", "reply", "topics"),
    [("Were there raiders?", YES, ("fact 0",)), ("Was it the plague?", NO, ("fact 1",)),
     ("Wasn't it the plague?", YES, ("fact 1",)), ("Were there no raiders?", NO, ("fact 0",)),
     ("Raiders or the plague?", NO, ("fact 0", "fact 1")),
     ("Did a jealous rival steal the bell?", YES, ("key question 0",)),
     ("Did a jealous rival not steal the bell?", NO, ("key question 0",)),
     ("Did nobody hear the storm?", YES, ("key question 1",)),
     ("Did somebody hear the storm?", NO, ("key question 1",)), ("Was there a bell?", UNKNOWN, ()),
     ("Who did it?", rules.NOT_A_QUESTION, ())],
)  # fmt: skip
def test_the_rule_judge(question: str, reply: str, topics: tuple[str, ...]) -> None:
    assert rule_reply(PUZZLE, question) == Reply(reply, topics)


def test_a_question_as_like_as_it_must_be_is_enough_and_turns_on_its_own_key_question() -> None:
    assert rule_reply(PUZZLE, "Was the bell stolen?") == Reply(YES, ("key question 0",))
    longer = replace(PUZZLE, key_questions=(*PUZZLE.key_questions, "Did the keeper flee at night?"))
    assert rule_reply(longer, "Did nobody hear the storm?") == Reply(YES, ("key question 1",))


def test_a_whole_episode() -> None:
    env = started()
    assert asked(env, "Were there raiders?") == "Yes"
    observation, reward, terminated, truncated, info = env.step("<interact>Was it the plague?</interact>")
    assert (observation, reward, terminated, truncated) == ("No", 0.0, False, False)
    assert info["progress"] is True and info["query"] == "Was it the plague?"
    *_, info = env.step("<interact>Did it rain?</interact>")
    assert info["progress"] is False
    observation, *_, info = env.step("<interact>Why was it dark?</interact>")
    assert observation.startswith("This is not a question") and info["progress"] is True  # only "Unknown" stalls
    observation, reward, terminated, _, info = env.step(f"<answer>{STORY}</answer>")
    expected = rules.f1_score(STORY, tasks.find_puzzle(TASK).bottom, "word")
    assert (observation, reward, terminated) == (f"f1 {expected:.2f}", expected, True) and 0.3 < expected < 0.9
    assert info["success"] is (expected >= 0.5)
    assert info["metrics"] == {
        "turns": 5.0, "questions": 4.0, "unknown_replies": 1.0, "repeated_questions": 0.0, "f1_word": expected,
        "f1_char": rules.f1_score(STORY, tasks.find_puzzle(TASK).bottom, "char"),
    }  # fmt: skip


def test_reward_units_and_threshold() -> None:
    answer = "<answer>crown weighed bribe</answer>"
    _, reward, _, _, info = started(SMALL_TASK, **SMALL).step(answer)
    assert reward == pytest.approx(2 / 3) and not info["success"]
    _, reward, _, _, info = started(SMALL_TASK, **{**SMALL, "success_threshold": 0.6}).step(answer)
    assert reward == pytest.approx(2 / 3) and info["success"]
    _, reward, _, _, info = started(SMALL_TASK, **SMALL, f1="char").step(answer)
    assert reward == info["metrics"]["f1_char"] != info["metrics"]["f1_word"]
    assert started(SMALL_TASK, **SMALL).step("<answer>crown weighed loan</answer>")[4]["success"]


def test_five_unknowns_in_a_row_are_t3s_condition() -> None:
    env = started()
    questions = ["Hm?", "Is it so?", "Was it the plague?", *(f"Is it thing {i}?" for i in range(5))]
    progress = [env.step(f"<interact>{q}</interact>")[4]["progress"] for q in questions]
    assert progress == [False, False, True, False, False, False, False, False]
    assert fires_at(progress, base.env_spec("situation_puzzles").progress_window) == 8


AR_BENCH = SHARED_DATA / "ar_bench" / "data" / "sp"
needs_ar_bench = pytest.mark.skipif(not AR_BENCH.is_dir(), reason="AR-Bench's situation puzzles are not here")


def record(**changes: object) -> dict[str, object]:
    leaf = {"value": "v", "key_question": "Did the lamp go out?", "children": []}
    tree = {"value": "root", "key_question": "", "children": [leaf]}
    return {"surface": "A strange scene.", "bottom": "The lamp went out.", "story_tree": tree, **changes}


@pytest.mark.parametrize(("bad", "message"), [
    ({"bottom": "x"}, "no 'surface'"), ({"surface": "x", "bottom": "y"}, "'story_tree' is not a tree"),
    (record(surface="x" * 20_001), "not a text of 1 to 20000 characters"),
    (record(story_tree={"children": []}), "has no key_question"), (["text"], "a puzzle is list, not an object"),
])  # fmt: skip
def test_bad_records_are_named(tmp_path: Path, bad: object, message: str) -> None:
    (tmp_path / "train.json").write_text(json.dumps([record(), bad, record()]))
    with pytest.raises(InputError, match=rf"train\.json, item 2: .*{message}"):
        task_ids("train", data=str(tmp_path))


def test_bad_and_missing_data_are_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such folder"):
        task_ids("train", data=str(tmp_path / "absent"))
    with pytest.raises(InputError, match="no data in it"):
        task_ids("train", data=str(tmp_path))
    for text in (b"[{]", b"\xff\xfe"):
        (tmp_path / "test.json").write_bytes(text)
        with pytest.raises(InputError, match=r"test(\.json)?: (a value cannot be read|not UTF-8)"):
            task_ids("test", data=str(tmp_path))
    for count in (2, 1):  # a changed file is read again
        (tmp_path / "test.json").write_text(json.dumps([record()] * count))
        assert len(task_ids("test", data=str(tmp_path))) == count
    env = started("test/0000", data=str(tmp_path), prompt="compact")
    assert env.reset(options={"task_id": "test/0000"})[0] == record()["surface"]
    with pytest.raises(InputError, match="puzzle test/0000 has no theme"):
        STARTER.demonstrate("test/0000", random.Random(0), SituationPuzzlesOptions(data=str(tmp_path)))
    assert env.step("<interact>Did the lamp go out?</interact>")[0] == "yes"
    assert env.step("<answer>lamp</answer>")[1] > 0
    with pytest.raises(InputError, match="unknown situation_puzzles task 'test/0001'"):
        started("test/0001", data=str(tmp_path))


@needs_ar_bench
def test_ar_bench_puzzles() -> None:
    sizes = [len(task_ids(split, data=str(AR_BENCH))) for split in ("train", "test")]
    assert sizes == [400, 100]
    records = json.loads((AR_BENCH / "test.json").read_text(encoding="utf-8"))
    puzzles = [tasks.find_puzzle(f"test/{i:04d}", str(AR_BENCH)) for i in range(100)]
    known = [rule_reply(p, q).text for p in puzzles for q in p.key_questions]
    foreign = [rule_reply(p, q).text for p, o in pairwise(puzzles) for q in o.key_questions]
    assert set(known) == {YES} and foreign.count(UNKNOWN) > 0.97 * len(foreign)
    for puzzle, raw in zip(puzzles, records, strict=True):
        assert set(puzzle.key_questions) == set(raw["key_question"])
        assert tasks.f1_score(puzzle.bottom, puzzle.bottom, "word") == 1.0
    observation, _ = make(data=str(AR_BENCH)).reset(options={"task_id": "test/0000"})
    assert observation.endswith(f"Puzzle: {records[0]['surface']}")


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Loopback]:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with loopback(saying("Yes")) as server:
        yield server


def keys(server: Loopback) -> dict[str, str]:
    return {"judge": "openai", "judge_url": server.url, "judge_model": "referee"}


def test_what_the_server_is_asked(server: Loopback) -> None:
    puzzle = tasks.find_puzzle(TASK)
    question = "Did a {bird} tell him?"
    assert wait(
        make_judge(read_env_options(env_spec("situation_puzzles"), keys(server))).reply(puzzle, question)
    ) == Reply(YES)
    (request,) = server.requests
    asked = request.body["messages"][0]["content"]
    assert asked == PROMPT.format(surface=puzzle.surface, bottom=puzzle.bottom, question=question)
    assert asked.count(puzzle.bottom) == 1 and question in asked


@pytest.mark.parametrize(
    ("said", "reply", "progress"),
    [("**No**", "No", True), ("<think>Yes?</think>\n unknown.", "Unknown", False),
     ("Yes, I should check it.</think>\n\nno", "No", True), ("YES, he did.", "Yes", True),
     ("no, wait</think>yes<think>really?</think>\nNo.", "No", True), ("no<think>or yes", "No", True),
     ("This is not a question, please propose your next question.", rules.NOT_A_QUESTION, True)],
)  # fmt: skip
def test_replies_of_the_server(server: Loopback, said: str, reply: str, progress: bool) -> None:
    server.answer = saying(said)
    observation, *_, info = started(**keys(server)).step("<interact>Was it night?</interact>")
    assert (observation, info["progress"]) == (reply, progress)


def test_an_odd_reply_ends_the_episode(server: Loopback) -> None:
    """Silent servers, and those that refuse: `web.test_model_server`."""
    env = started(**keys(server))
    before = env.snapshot()
    server.answer = saying("Perhaps")
    reason = rf"JudgeError: referee at .*: replied 'Perhaps', none of Yes, No.*; asked about: {TASK} -> Was it night"
    with pytest.raises(EnvFailure, match=f"env_error: {reason}"):
        call_env(0, env.step, "<interact>Was it night?</interact>")
    assert env.snapshot() == before
