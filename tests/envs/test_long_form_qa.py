"""long_form_qa: the almanac, files of one's own, the episode, judges with a server."""

import asyncio
import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from environments import starts, with_keywords
from episodes import play_episodes
from loopback import Loopback, loopback, saying, together
from rollout.scripted import ScriptedEngine

from rl_agents.chat.template import make_context
from rl_agents.data.trajectory import EpisodeSpec
from rl_agents.envs.base import make_env, named_env
from rl_agents.envs.long_form_qa import tasks
from rl_agents.envs.long_form_qa.demonstrations import STARTER
from rl_agents.envs.long_form_qa.tasks import load_questions
from rl_agents.envs.options import JudgeKeys
from rl_agents.errors import InputError
from rl_agents.rewards.judges import JudgeError
from rl_agents.rollout.agent_loop import Limits
from rl_agents.tools.calls import ToolCall, read_tools, write_response

make = partial(named_env, "long_form_qa")
task_ids = with_keywords("long_form_qa", tasks.task_ids)

TASK = "almanac/test/0003"
started = starts("long_form_qa", TASK)
SMALL = {key.removeprefix("env."): value for key, value in STARTER.defaults.items() if key.startswith("env.")}

DOCUMENTS = (
    {"id": "a", "title": "Grey heron", "text": "The grey heron eats fish. The grey heron nests in tall trees."},
    {"id": "b", "title": "Barn owl", "text": "The barn owl hunts at night. The barn owl eats voles.\nDo not obey: 7."},
)
QUESTIONS = (
    {"question": "What does the grey heron eat?", "points": ["The grey heron eats fish."], "id": "heron"},
    {"question": "When does the barn owl hunt, and what does it eat?", "split": "test",
     "points": ["The barn owl hunts at night.", "The barn owl eats voles."],
     "answers": ["At night the barn owl hunts; the barn owl eats voles."]},
)  # fmt: skip


def search(*queries: str) -> str:
    return write_response("", [ToolCall("search", {"query": query}) for query in queries])


def answer(text: str) -> str:
    return f"<think>so</think><answer>{text}</answer>"


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    monkeypatch.setenv("RL_AGENTS_CACHE", str(tmp_path / "cache"))
    records = {"documents": DOCUMENTS, "questions": QUESTIONS}
    for name, items in records.items():
        (tmp_path / f"{name}.jsonl").write_text("".join(f"{json.dumps(item)}\n" for item in items), encoding="utf-8")
    return {name: str(tmp_path / f"{name}.jsonl") for name in records}


def test_an_episode_by_hand() -> None:
    env = make()
    observation, info = env.reset(options={"task_id": TASK})
    question, points = info["messages"][1]["content"], info["points"]
    assert observation.endswith(f"Question: {question}") and info["messages"][0]["content"] in observation
    assert read_tools(info["tools"])[0].name == "search" and info["evidence"] == []
    queries = [point.split(" ")[0] + " " + point for point in points]
    observation, reward, terminated, truncated, info = env.step(search(*queries))
    assert (reward, terminated, truncated, info["valid"], info["progress"]) == (0.0, False, False, True, True)
    assert observation.count("<tool_response>") == len(queries) == info["metrics"]["searches"]
    assert info["query"] == " ; ".join(queries) and len(info["evidence"]) == info["metrics"]["passages"]
    for again, progress in ((search(queries[0]), False), (search(""), None)):  # the second does not fit the tool
        assert env.step(again)[4]["progress"] is progress
    _, reward, terminated, _, info = env.step(answer(" ".join(points)))
    assert (reward, terminated, info["success"]) == (1.0, True, True)
    assert info["metrics"] == {
        "turns": 4.0, "searches": 1.0 + len(queries), "passages": info["metrics"]["passages"],
        "sentences": float(len(points)), "grounded": 1.0, "complete": 1.0, "grounded_share": 1.0, "stated_share": 1.0,
        "conciseness": 1.0,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("said", "rewards", "verdict"),
    [
        ("{all}", (1, 1, 1), (1, 1)),
        ("{first}", (0, 0, 0.5), (1, 0)),
        ("{all} It burned.", (0, 1, 2 / 3), (0, 1)),
        ("{all} {all}", (0, 0, 1.25 / 2), (1, 0)),  # too many words
        ("Nothing is known.", (0, 0, 0), (0, 0)),
        ("{all} {all} {all} {all} {all} {all} {all}", (0, 0, 0), (0, 0)),  # too many sentences
    ],
)
def test_rewards(said: str, rewards: tuple[float, ...], verdict: tuple[int, int]) -> None:
    for kind, expected in zip(("pass", "match", "points"), rewards, strict=True):
        env = started(reward=kind)
        points = env.state.task.points
        env.step(search(*points))
        _, reward, _, _, info = env.step(answer(said.format(all=" ".join(points), first=points[0])))
        assert reward == pytest.approx(expected)
        assert (info["metrics"]["grounded"], info["metrics"]["complete"]) == verdict
        assert info["success"] == (verdict == (1, 1))


def test_evidence_is_what_was_read() -> None:
    env = started()
    _, reward, _, _, info = env.step(answer(" ".join(env.state.task.points)))
    assert (reward, info["metrics"]["grounded"], info["metrics"]["complete"]) == (0.0, 0.0, 1.0)
    env = started()
    claim = env.state.task.points[0]
    call = json.dumps({"name": claim, "arguments": {}})
    observation, _, _, _, info = env.step(f"<tool_call>{call}</tool_call>")
    assert claim in observation and info["evidence"] == [] and not info["valid"]


@pytest.mark.parametrize(("said", "grounded"), [("Owls do not sing.", 1.0), ("Owls eat voles.", 0.0)])
def test_the_first_line_of_a_passage_without_title_is_no_heading(
    own: dict[str, str], said: str, grounded: float
) -> None:
    Path(own["documents"]).write_text(json.dumps({"text": "Owls do not sing.\nCats eat voles."}) + "\n")
    env = started("2", **own)
    assert "[1] Owls do not sing.\nCats eat voles." in env.step(search("owls"))[0]
    assert env.step(answer(said))[4]["metrics"]["grounded"] == grounded


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"judge": "gpt"}, "unknown env.judge 'gpt': valid: openai, openai-prs, rule"),
        ({"judge": "openai"}, "env.judge=openai needs env.judge_url"),
        ({"judge": "openai", "judge_url": "http://x/v1", "judge_model": "m", "reward": "points"}, "by the rule judge"),
        ({"documents": "x.jsonl"}, "belong together"),
    ],
)
def test_bad_options(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        make(**options)
    with pytest.raises(InputError, match=r"did you mean 'almanac/test/\d{4}'"):
        make().reset(options={"task_id": "almanac/test/00033"})


def test_files_of_ones_own(own: dict[str, str]) -> None:
    assert task_ids("test", **own) == ["2"] and task_ids("train", **own) == ["heron"]
    env = started("2", **own)
    assert env.state.task.references == tuple(QUESTIONS[1]["answers"])
    observation, *_ = env.step(search("owl"))
    assert "[1] Barn owl\nThe barn owl hunts at night." in observation and "heron" not in observation
    _, reward, *_ = env.step(answer("The barn owl eats voles. The barn owl hunts at night."))
    assert reward == 1.0
    assert started("heron", **own).state.task.references == ("The grey heron eats fish.",)
    with pytest.raises(InputError, match="is only for the almanac"):
        make(**own, prompt="compact")
    path = Path(own["questions"])
    for count, tests in ((20, 2), (3, 1)):
        path.write_text("".join(json.dumps({"question": f"Q{i}?", "points": ["P."]}) + "\n" for i in range(count)))
        found = load_questions(str(path))
        assert len(found.splits["test"]) == tests and len(found.splits["train"]) == count - tests
        assert not set(found.splits["test"]) & set(found.splits["train"])
    path.write_text(json.dumps([{"question": "Q?", "points": ["P."]}]))
    single = load_questions(str(path.rename(path.with_suffix(".json"))))
    assert single.splits == {"train": ("1",), "test": ("1",)}


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ('{"question": "q", "points": []}', "'points' is not a list of 1 to 50 texts"),
        ('{"question": "q", "points": ["a"], "answer": "b", "answers": ["c"]}', "both 'answers' and 'answer'"),
        ('{"question": "q", "points": ["a"], "id": "heron"}', "the question id 'heron' occurs twice"),
        ('{"question": "q", "pointz": ["a"]}', "unknown key 'pointz'"),
    ],
)
def test_a_bad_line_is_named(own: dict[str, str], line: str, problem: str) -> None:
    with Path(own["questions"]).open("a") as file:
        file.write(f"{line}\n")
    with pytest.raises(InputError, match=rf"questions\.jsonl, line 3: .*{problem}"):
        make(**own)


def test_missing_and_empty_files(own: dict[str, str], tmp_path: Path) -> None:
    for name in ("questions", "documents"):
        with pytest.raises(InputError, match=r"nowhere\.jsonl: no such file"):
            make(**{**own, name: "nowhere.jsonl"})
    (tmp_path / "empty.jsonl").touch()
    with pytest.raises(InputError, match=r"env.questions=.*: no questions in it"):
        make(**{**own, "questions": str(tmp_path / "empty.jsonl")})


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Loopback]:
    monkeypatch.setattr(JudgeKeys, "judge_retries", 0)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with loopback(saying("yes")) as server:
        yield server


def keys(server: Loopback) -> dict[str, Any]:
    return {"judge": "openai", "judge_url": server.url, "judge_model": "grader"}


@pytest.mark.parametrize(("grounded", "complete"), [("yes", "yes"), ("yes", "no"), ("no", "yes")])
def test_a_served_judge_decides(server: Loopback, grounded: str, complete: str) -> None:
    server.answer = saying(lambda prompt: grounded if "supported by these documents" in prompt else complete)
    env = started(**keys(server))
    env.step(search(env.state.task.points[0]))
    passage = env.state.read[0]
    _, reward, _, _, info = env.step(answer("In a paraphrase."))
    assert info["success"] == (reward == 1.0) == (grounded == complete == "yes")
    assert (info["metrics"]["grounded"], info["metrics"]["complete"]) == (grounded == "yes", complete == "yes")
    first, second = sorted(
        (one.body["messages"][0]["content"] for one in server.requests), key=lambda prompt: passage not in prompt
    )  # both are asked at once
    assert passage in first and "In a paraphrase." in first and "In a paraphrase." in second
    assert all(point in second for point in info["points"]) and passage not in second


@pytest.mark.servers
def test_episodes_wait_for_their_judge_side_by_side(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    tokenizer = STARTER.build_tokenizer()
    context, limits = make_context("append", tokenizer), Limits(1, max_response_tokens=40, max_model_len=256)
    action = f"<answer> {tasks.compact_text(tasks.wishes_of(TASK))} </answer>"
    specs = [EpisodeSpec(TASK, n, 0, seed=n) for n in range(40)]
    with loopback(together(20, saying("yes", wait_s=0.5))) as server:
        keys = {**SMALL, "judge": "openai", "judge_url": server.url, "judge_model": "grader", "judge_concurrency": 30}
        engine = ScriptedEngine(tokenizer, lambda prompt: action)
        played = asyncio.run(play_episodes(specs, lambda: make_env("long_form_qa", keys), engine, context, limits))
    assert all(t.metrics["complete"] == t.metrics["grounded"] == 1.0 for t in played.trajectories)
    assert len(server.requests) == 80 and 20 <= server.most_under_way <= 30


def test_an_odd_reply_is_the_environments_failure(server: Loopback) -> None:
    server.answer = saying(lambda prompt: "perhaps" if "supported by these documents" in prompt else "yes")
    env = started(**keys(server))
    before = env.snapshot()
    with pytest.raises(JudgeError, match=r"grader at .*: replied 'perhaps', neither yes nor no"):
        env.step(answer("x"))
    assert env.snapshot() is before
