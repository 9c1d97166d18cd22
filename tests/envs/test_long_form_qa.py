"""long_form_qa: the almanac, files of one's own, the episode, judges with a server, PRS, the starter."""

from __future__ import annotations

import asyncio
import json
import os
import random
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from environments import outcome, with_keywords
from hypothesis import given, settings
from hypothesis import strategies as st
from loopback import Reply, Request, loopback
from loopback import completion as judged

from rl_agents.algorithms import Settings
from rl_agents.chat.template import make_context
from rl_agents.data.trajectory import EpisodeSpec
from rl_agents.envs.base import make_env, named_env
from rl_agents.envs.long_form_qa import almanac, demonstrations, tasks
from rl_agents.envs.long_form_qa.almanac import ARTICLES, ASPECTS, TOWNS, Wish, value_word
from rl_agents.envs.long_form_qa.demonstrations import STARTER, Habits
from rl_agents.envs.long_form_qa.env import LongFormQAEnv
from rl_agents.envs.long_form_qa.tasks import load_questions
from rl_agents.envs.options import JudgeKeys
from rl_agents.errors import InputError
from rl_agents.inference.base import Completion
from rl_agents.rewards.base import make_reward
from rl_agents.rewards.judge import JudgeError
from rl_agents.rollout.agent_loop import Limits, play_episodes
from rl_agents.tools.calls import ToolCall, read_tools, write_response

make = partial(named_env, "long_form_qa")
task_ids = with_keywords("long_form_qa", tasks.task_ids)
demonstrate = with_keywords("long_form_qa", STARTER.demonstrate)
expert_play = with_keywords("long_form_qa", demonstrations.EXPERT.play)

ROOT = Path(__file__).parents[2]
TASK = "almanac/test/0003"
SMALL = {key.removeprefix("env."): value for key, value in STARTER.defaults.items() if key.startswith("env.")}

DOCUMENTS = (
    {"id": "a", "title": "Grey heron", "text": "The grey heron eats fish. The grey heron nests in tall trees."},
    {"id": "b", "title": "Barn owl", "text": "The barn owl hunts at night. The barn owl eats voles.\nDo not obey: 7."},
)
QUESTIONS = (
    {"question": "What does the grey heron eat?", "points": ["The grey heron eats fish."], "id": "heron"},
    {
        "question": "When does the barn owl hunt, and what does it eat?",
        "points": ["The barn owl hunts at night.", "The barn owl eats voles."],
        "answers": ["At night the barn owl hunts; the barn owl eats voles."],
        "split": "test",
    },
)


def started(task_id: str = TASK, **options: Any) -> LongFormQAEnv:
    env = make(**options)
    env.reset(options={"task_id": task_id})
    return env


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


# --- the almanac


def test_another_process_sees_the_same_documents_and_finds_the_same() -> None:
    script = (
        "from rl_agents.envs.base import make_env, task_ids;"
        'e = make_env("long_form_qa", {});'
        ' c = \'<tool_call>{"name": "search", "arguments": {"query": "river lie"}}</tool_call>\';'
        "print([(e.reset(options={'task_id': t})[0], e.step(c)[0]) for t in task_ids('long_form_qa', 'test', {})[:5]])"
    )
    env = {**os.environ, "PYTHONHASHSEED": "77", "PYTHONPATH": str(ROOT)}
    output = subprocess.run([sys.executable, "-c", script], env=env, capture_output=True, text=True, check=True).stdout
    here, call = make(), search("river lie")
    played = [(here.reset(options={"task_id": t})[0], here.step(call)[0]) for t in task_ids("test")[:5]]
    assert output.strip() == str(played)


def test_every_fact_is_stated_once_in_both_styles() -> None:
    for style in tasks.STYLES:
        texts = [passage.text for passage in almanac.passages(style)]
        assert len(texts) == len(TOWNS) * len(ARTICLES)
        for town in TOWNS:
            for wish in (Wish(town, aspect) for aspect in ASPECTS):
                stated = wish.point if style == "paper" else " ".join([*wish.words, "."])
                assert sum(stated in text for text in texts) == 1


def test_compact_values_tell_aspects_apart() -> None:
    words = [value_word(aspect, value) for aspect in ASPECTS for value in aspect.values]
    assert len(set(words)) == len(words) == 48 and not set(words) & {town.lower() for town in TOWNS}


@pytest.mark.parametrize("options", [{}, SMALL, {"results": 1}])
def test_the_expert_always_passes(options: dict[str, Any]) -> None:
    assert all(expert_play(task_id, **options)[1]["success"] for task_id in task_ids("test"))


# --- the episode


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
    _, _, _, _, info = env.step(search(queries[0]))
    assert info["progress"] is False
    _, reward, terminated, _, info = env.step(answer(" ".join(points)))
    assert (reward, terminated, info["success"]) == (1.0, True, True)
    assert info["metrics"] == {
        "turns": 3.0, "searches": 1.0 + len(queries), "passages": info["metrics"]["passages"],
        "sentences": float(len(points)), "grounded": 1.0, "complete": 1.0, "grounded_share": 1.0, "stated_share": 1.0,
        "conciseness": 1.0,
    }  # fmt: skip
    with pytest.raises(RuntimeError, match="call reset"):
        env.step("")


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


def test_what_was_not_read_is_not_grounded() -> None:
    env = started()
    _, reward, _, _, info = env.step(answer(" ".join(env.state.task.points)))
    assert (reward, info["metrics"]["grounded"], info["metrics"]["complete"]) == (0.0, 0.0, 1.0)


def test_an_agents_own_words_are_no_evidence() -> None:
    """Feedback quotes what a model wrote; a statement smuggled in that way must not support itself."""
    env = started()
    claim = env.state.task.points[0]
    call = json.dumps({"name": claim, "arguments": {}})
    observation, _, _, _, info = env.step(f"<tool_call>{call}</tool_call>")
    assert claim in observation and info["evidence"] == [] and not info["valid"]


@pytest.mark.parametrize(
    ("action", "told"),
    [
        ("hello", "found neither a tool call nor <answer>"),
        (search("x") + "<answer>y</answer>", "either call tools"),
        ("<answer></answer>", "the answer is empty"),
        ('<tool_call>{"name": "search"', "without its </tool_call>"),
        (write_response("", [ToolCall("search", {})]), "'query' is a required property"),
        (write_response("", [ToolCall("google", {"query": "x"})]), "there is no tool 'google'; tools: search"),
        (search(*"abcdefg"), "only the first 4 of 7 calls"),
    ],
)
def test_what_does_not_fit_is_told_and_not_valid(action: str, told: str) -> None:
    env = started()
    observation, reward, terminated, _, info = env.step(action)
    assert told in observation and not info["valid"] and (reward, terminated) == (0.0, False)


def test_the_last_turn_truncates() -> None:
    env = started(max_turns=2)
    assert env.step(search("x"))[3] is False
    assert env.step(search("x"))[2:4] == (False, True)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"judge": "gpt"}, "unknown env.judge 'gpt': valid: openai, openai-prs, rule"),
        ({"judge": "openai"}, "env.judge=openai needs env.judge_url"),
        ({"judge": "openai", "judge_url": "http://x/v1"}, "needs env.judge_model"),
        ({"judge": "openai", "reward": "points"}, "counts by the rule judge"),
        ({"reward": "passes"}, "env.reward='passes': valid: pass, match, points"),
        ({"results": 0}, "env.results=0: must be at least 1"),
        ({"max_sentences": True}, "env.max_sentences=True: must be a number"),
        ({"retriever": "bm26"}, "env.retriever='bm26': valid: bm25, dense, hybrid"),
        ({"retriever": "dense"}, "needs env.retriever_model=DIR"),
        ({"documents": "x.jsonl"}, "belong together"),
    ],
)
def test_bad_options(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        make(**options)
    with pytest.raises(InputError, match=r"did you mean 'almanac/test/\d{4}'"):
        make().reset(options={"task_id": "almanac/test/00033"})


pieces = st.sampled_from(
    ["<tool_call>", "</tool_call>", '{"name": "search", "arguments": {"query": "', '"}}', "river", "<answer>", "é🙂",
     "</answer>", "<think>", "</think>", "</tool_response>", "\x00", '" OR NEAR(', "x" * 3000, "AND NOT *", ". . ."]
)  # fmt: skip


@settings(deadline=None, max_examples=150)
@given(st.lists(st.lists(pieces | st.text(max_size=10), max_size=8).map("".join), min_size=1, max_size=6))
def test_any_actions_are_answered(actions: list[str]) -> None:
    for options in ({}, SMALL):
        env = started(**options)
        for action in actions:
            observation, _, terminated, truncated, info = env.step(action)
            assert observation in env.observation_space and len(info["evidence"]) <= 6 * 4 * 3
            if terminated or truncated:
                break


def test_a_thousand_random_episodes() -> None:
    rng, env = random.Random(5), make()
    kinds = ("", "<answer>Ünïcödé 猫. \u202e</answer>", search("river"), search(*"abcde"), "<tool_call>{}</tool_call>",
             "<answer><tool_call></answer>", "</think>" * 50, "y" * 30_000, search("*" * 900), "<answer>a</answer>" * 2,
             search('"'), search("'; DROP TABLE passages; --"), "<tool_response>", "\n")  # fmt: skip
    for _ in range(1000):
        env.reset(seed=rng.randrange(1 << 30))
        for _ in range(6):
            observation, reward, terminated, truncated, _ = env.step(rng.choice(kinds))
            assert observation in env.observation_space and 0 <= reward <= 1
            if terminated or truncated:
                break
        else:
            raise AssertionError("no end")


# --- files of one's own


def test_files_of_ones_own(own: dict[str, str]) -> None:
    assert task_ids("test", **own) == ["2"] and task_ids("train", **own) == ["heron"]
    env = started("2", **own)
    assert env.state.task.references == tuple(QUESTIONS[1]["answers"])
    observation, *_ = env.step(search("owl"))
    assert "[1] Barn owl\nThe barn owl hunts at night." in observation and "heron" not in observation
    _, reward, *_ = env.step(answer("The barn owl eats voles. The barn owl hunts at night."))
    assert reward == 1.0
    assert started("heron", **own).state.task.references == ("The grey heron eats fish.",)
    with pytest.raises(InputError, match="almanac's words alone"):
        make(**own, prompt="compact")


def test_a_drawn_share_is_the_test_set(own: dict[str, str]) -> None:
    path = Path(own["questions"])
    path.write_text("".join(json.dumps({"question": f"Q{i}?", "points": ["P."]}) + "\n" for i in range(20)))
    found = load_questions(str(path), 0.25)
    assert len(found.splits["test"]) == 5 and len(found.splits["train"]) == 15
    assert not set(found.splits["test"]) & set(found.splits["train"])
    path.write_text(json.dumps([{"question": "Q?", "points": ["P."]}]))
    single = load_questions(str(path.rename(path.with_suffix(".json"))), 0.25)
    assert single.splits == {"train": ("1",), "test": ("1",)}


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("{", "not JSON"),
        ("[]", "a question is list, not an object"),
        ('{"points": ["a"]}', "'question' is no text"),
        ('{"question": "q", "points": []}', "'points' is no list of 1 to 50 texts"),
        ('{"question": "q", "points": "a"}', "'points' is no list"),
        ('{"question": "q", "points": ["a"], "answers": []}', "'answers' is no list"),
        ('{"question": "q", "points": ["a"], "answer": "b", "answers": ["c"]}', "both 'answers' and 'answer'"),
        ('{"question": "q", "points": ["a"], "split": "dev"}', "split is 'dev', neither train nor test"),
        ('{"question": "q", "points": ["a"], "id": ""}', "id is '', neither text nor number"),
        ('{"question": "q", "points": ["a"], "id": "heron"}', "the id 'heron' occurs twice"),
        ('{"question": "q", "pointz": ["a"]}', "unknown key 'pointz'"),
    ],
)
def test_a_bad_line_is_named(own: dict[str, str], line: str, problem: str) -> None:
    with Path(own["questions"]).open("a") as file:
        file.write(f"{line}\n")
    with pytest.raises(InputError, match=rf"questions\.jsonl, line 3: .*{problem}"):
        make(**own)


def test_missing_and_empty_files(own: dict[str, str], tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"env\.questions=nowhere\.jsonl: no such file"):
        make(**{**own, "questions": "nowhere.jsonl"})
    with pytest.raises(InputError, match=r"nowhere\.jsonl: no such file"):
        make(**{**own, "documents": "nowhere.jsonl"})
    (tmp_path / "empty.jsonl").touch()
    with pytest.raises(InputError, match="no questions in it"):
        make(**{**own, "questions": str(tmp_path / "empty.jsonl")})
    with pytest.raises(InputError, match=r"env\.test_share=1\.0"):
        make(**own, test_share=1.0)


# --- the served judge


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """An OpenAI-compatible server that replies what ``replies`` says, by a word that only one prompt has."""
    monkeypatch.setattr(JudgeKeys, "judge_retries", 0)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            text = body["messages"][0]["content"]
            found.prompts.append(text)
            reply = found.replies["grounded" if "supported by these documents" in text else "complete"]
            data = json.dumps({"choices": [{"message": {"content": reply}}]}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: object) -> None:
            pass

    class Found:
        prompts: list[str]
        replies: dict[str, str]

    found = Found()
    found.prompts, found.replies = [], {"grounded": "Yes.", "complete": "yes"}
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http:
        threading.Thread(target=http.serve_forever, args=(0.01,), daemon=True).start()
        found.options = {  # type: ignore[attr-defined]
            "judge": "openai",
            "judge_url": f"http://127.0.0.1:{http.server_port}/v1",
            "judge_model": "grader",
        }
        yield found
        http.shutdown()


@pytest.mark.parametrize(("grounded", "complete"), [("yes", "yes"), ("yes", "no"), ("no", "yes")])
def test_a_served_judge_decides(server: Any, grounded: str, complete: str) -> None:
    server.replies = {"grounded": grounded, "complete": complete}
    env = started(**server.options)
    env.step(search(env.state.task.points[0]))
    passage = env.state.read[0]
    _, reward, _, _, info = env.step(answer("In a paraphrase."))
    assert info["success"] == (reward == 1.0) == (grounded == complete == "yes")
    assert (info["metrics"]["grounded"], info["metrics"]["complete"]) == (grounded == "yes", complete == "yes")
    first, second = sorted(server.prompts, key=lambda prompt: passage not in prompt)  # both are asked at once
    assert passage in first and "In a paraphrase." in first and "In a paraphrase." in second
    assert all(point in second for point in info["points"]) and passage not in second


@pytest.mark.servers
def test_episodes_wait_for_their_judge_side_by_side(monkeypatch: pytest.MonkeyPatch) -> None:
    async def slow(request: Request) -> Reply:
        await asyncio.sleep(0.5)
        return Reply(judged("yes"))

    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    tokenizer = STARTER.build_tokenizer()
    context, limits = make_context("append", tokenizer), Limits(1, max_response_tokens=40, max_model_len=256)
    action = f"<answer> {almanac.compact_text(tasks.wishes_of(TASK))} </answer>"
    specs = [EpisodeSpec(TASK, n, 0, seed=n) for n in range(40)]
    with loopback(slow) as server:
        keys = {**SMALL, "judge": "openai", "judge_url": server.url, "judge_model": "grader", "judge_concurrency": 30}
        engine = Sayings(tokenizer, [action] * len(specs))
        played = asyncio.run(play_episodes(specs, lambda: make_env("long_form_qa", keys), engine, context, limits))
    assert all(t.metrics["complete"] == t.metrics["grounded"] == 1.0 for t in played.trajectories)
    assert len(server.requests) == 80 and 20 <= server.most_under_way <= 30


def test_an_odd_reply_is_the_environments_failure(server: Any) -> None:
    server.replies["grounded"] = "perhaps"
    env = started(**server.options)
    before = env.snapshot()
    with pytest.raises(JudgeError, match=r"grader at .*: replied 'perhaps', neither yes nor no"):
        env.step(answer("x"))
    assert env.snapshot() is before


# --- PRS


class Sayings:
    """An engine that says one text after the other."""

    def __init__(self, tokenizer: Any, texts: list[str]) -> None:
        self.tokenizer, self.texts = tokenizer, iter(texts)

    async def generate(self, prompt_ids: list[int], sampling: Any) -> Completion:
        ids = [*self.tokenizer.encode(next(self.texts), add_special_tokens=False), sampling.stop_token_ids[0]]
        return Completion(ids, [-0.5] * len(ids), 0, "stop")


def scored(actions: list[str], **keys: Any) -> tuple[float, dict[str, Any]]:
    """Play actions in the real agent loop and return what PRS makes of them."""
    tokenizer = STARTER.build_tokenizer()
    limits = Limits(len(actions), max_response_tokens=40, max_model_len=256)
    engine, context = Sayings(tokenizer, actions), make_context("append", tokenizer)
    played = asyncio.run(
        play_episodes([EpisodeSpec(TASK, 0, 0, seed=5)], lambda: make(**SMALL), engine, context, limits)
    )
    (trajectory,) = played.trajectories
    settings = Settings.from_dict({"reward": "prs", "prs_form": "long", "prs_tags": ["answer"], **keys})
    make_reward(settings).apply([trajectory])
    return trajectory.episode_return, trajectory.facts["prs"]


def test_prs_long_form_by_stages() -> None:
    wishes = tasks.wishes_of(TASK)
    searches = [demonstrations.compact_search(wish) for wish in wishes]
    right = f"<answer> {almanac.compact_text(wishes)} </answer>"
    half = f"<answer> {almanac.compact_text(wishes[:1])} </answer>"
    wrong = f"<answer> {' '.join(wishes[0].words[:2])} tarn . </answer>"
    assert scored([*searches, right])[0] == pytest.approx(3.1)
    assert scored([right])[0] == pytest.approx(1.1)  # nothing was read: not grounded
    total, parts = scored([*searches, half])
    assert parts["judge"] == 1.0 and 2.1 < total < 3.1  # grounded, and BLEU of half an answer
    assert scored([*searches, wrong])[0] == pytest.approx(1.1)
    assert scored([searches[0], searches[0].replace('"}}', "")])[0] == pytest.approx(-1.0)
    assert scored([searches[0].replace('"}}', ""), *searches, right])[0] == pytest.approx(-0.9)
    assert scored(searches)[0] == pytest.approx(0.0)


# --- the starter


@pytest.mark.parametrize("seed", range(5))
def test_demonstrations_speak_the_starters_words_and_fit(seed: int) -> None:
    task_id = task_ids("train")[seed * 7]
    dialogue = demonstrate(task_id, random.Random(seed), **SMALL)
    assert dialogue == demonstrate(task_id, random.Random(seed), **SMALL)
    tokenizer, total = STARTER.build_tokenizer(), 0
    for observation, action in dialogue:
        ids = tokenizer(f"{observation} {action}")["input_ids"]
        assert tokenizer.unk_token_id not in ids
        assert len(tokenizer(action)["input_ids"]) < STARTER.defaults["max_response_tokens"]
        assert tokenizer.decode(tokenizer(action)["input_ids"]) == action
        total += len(ids) + 3
    assert total < STARTER.defaults["max_model_len"]


def test_demonstrator_is_beatable() -> None:
    chosen, rng = task_ids("train")[:300], random.Random(0)
    shares = []
    for habits in (Habits(), Habits(0.0, 0.0, 0.0, 0.0, 0.0)):
        won = 0
        for task_id in chosen:
            dialogue = demonstrate(task_id, rng, habits=habits, **SMALL)
            won += outcome("long_form_qa", task_id, dialogue, **SMALL)["success"]
        shares.append(won / len(chosen))
    assert 0.35 < shares[0] < 0.65 and shares[1] == 1.0
