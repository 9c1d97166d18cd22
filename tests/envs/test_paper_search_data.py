"""PaperSearch with data and a server: files of papers and queries, citations on disk, the served selector."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from environments import with_keywords

from rl_agents.background import wait
from rl_agents.envs.base import env_spec, named_env, read_env_options
from rl_agents.envs.options import RetrieverKeys
from rl_agents.envs.paper_search import PaperSearchOptions, selectors, tasks
from rl_agents.envs.paper_search.demonstrations import written
from rl_agents.envs.paper_search.generated import SMALL_JARGON, SMALL_METHODS, SMALL_SUBJECTS
from rl_agents.envs.paper_search.library import Citations, Library, Paper, Task
from rl_agents.envs.paper_search.selectors import PROMPT, ServerSelector, make_selector
from rl_agents.errors import InputError
from rl_agents.retrieval.retriever import reciprocal_rank_fusion
from rl_agents.rewards.judge import JudgeError

make = partial(named_env, "paper_search")
task_ids = with_keywords("paper_search", tasks.task_ids)

PAPERS = [
    {
        "paperId": "aa11",
        "title": "Moss  clocks",
        "abstract": "We date walls by moss.",
        "externalIds": {"ArXiv": "1706.00001", "DOI": "10/x"},
        "references": [{"paperId": "bb22"}, {"paperId": None}, None, "elsewhere"],
        "year": 2017,
    },
    {"paperId": "bb22", "title": "Walls", "abstract": None, "references": ["aa11", "1706.00001", "bb22"]},
    {"paperId": "cc33", "title": "Moss and ferns", "abstract": "Ferns.", "externalIds": None, "references": None},
]
TRAIN = [{"id": "q1", "query": "How old is moss?", "relevant": ["1706.00001", "cc33", "absent"]}]
TEST = [{"qid": 7, "question": "What is a wall?", "answer_arxiv_id": ["bb22"], "answer": ["Walls"]}]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("RL_AGENTS_CACHE", str(tmp_path / "cache"))
    return write(tmp_path / "mine")


def write(folder: Path, papers: Any = PAPERS, train: Any = TRAIN, test: Any = TEST) -> Path:
    folder.mkdir(exist_ok=True)
    for name, records in (("papers", papers), ("train", train), ("test", test)):
        lines = [record if isinstance(record, str) else json.dumps(record) for record in records]
        (folder / f"{name}.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder


def calls(*pairs: tuple[str, str]) -> str:
    return written(pairs, compact=False)


# --- files


def test_a_folder_is_searched(folder: Path) -> None:
    assert task_ids("train", papers=str(folder)) == ["train/q1"]
    assert task_ids("test", papers=str(folder)) == ["test/7"]
    env = make(papers=str(folder))
    observation, _ = env.reset(options={"task_id": "train/q1"})
    assert "How old is moss?" in observation
    # Without a server the annotation is the selector: 1.0 for each of the two that are there, 0 is dropped.
    observation, reward, _, _, info = env.step(calls(("search", "moss clocks and ferns")))
    assert reward == 2.0 and "[1706.00001] Moss clocks" in observation and "[cc33] Moss and ferns" in observation
    assert info["metrics"]["recall"] == pytest.approx(2 / 3) and info["metrics"]["f1"] == pytest.approx(0.8)
    # An unknown reference and one to itself are no citations, two names of one paper are one.
    library = tasks.find_papers(PaperSearchOptions(papers=str(folder))).library("train/q1", RetrieverKeys())
    assert library.neighbors("1706.00001", 9, 9) == ["bb22"] and library.citations.cited_by("bb22", 9) == ["1706.00001"]
    assert library.neighbors("cc33", 9, 9) == [] and "aa11" not in library


def test_the_index_is_built_once_and_again_when_the_file_changes(folder: Path) -> None:
    def size() -> int:
        return len(tasks.find_papers(PaperSearchOptions(papers=str(folder))).library("train/q1", RetrieverKeys()))

    def made() -> set[Path]:
        return {path for path in (folder.parent / "cache").rglob("*") if path.suffix in (".sqlite", ".npz")}

    assert size() == 3
    first = made()
    assert len(first) == 2
    assert size() == 3 and made() == first
    write(folder, papers=[*PAPERS, {"paperId": "dd44", "title": "New", "abstract": "x"}])
    assert size() == 4 and len(made()) == 4


PAPER, QUERY = PAPERS[2], TRAIN[0]


@pytest.mark.parametrize(
    ("file", "line", "message"),
    [
        ("papers", "{", "papers.jsonl, line 4: "),
        ("papers", "[1]", "papers.jsonl, line 4: a paper is list, not an object"),
        ("papers", {"title": "x"}, "line 4: no 'paperId'; it has: title"),
        ("papers", {**PAPER, "paperId": "a b"}, "line 4: paperId is 'a b', not an id"),
        ("papers", {**PAPER, "paperId": "x" * 65}, "line 4: paperId"),
        ("papers", {"paperId": "x"}, "line 4: no 'title'; it has: paperId"),
        ("papers", {**PAPER, "title": " "}, "line 4: 'title' is no text of 1 to"),
        ("papers", {**PAPER, "abstract": 5}, "line 4: 'abstract' is no text"),
        ("papers", {**PAPER, "references": "aa11"}, "line 4: 'references' is no list"),
        ("papers", {**PAPER, "references": [5]}, "line 4: a reference is int"),
        ("papers", {**PAPER, "externalIds": []}, None),
        ("papers", {**PAPER, "externalIds": [1]}, "line 4: externalIds is list"),
        ("papers", PAPER, "two passages with the id 'cc33'"),
        ("train", {"query": "x"}, "train.jsonl, line 2: 'relevant' is no list"),
        ("train", {**QUERY, "relevant": [1]}, "train.jsonl, line 2: 'relevant'"),
        ("train", {"id": "q2", "relevant": ["cc33"]}, "line 2: no 'question'; it has: id, relevant"),
        ("train", {**QUERY, "id": True}, "line 2: id is True"),
        ("train", QUERY, "two queries with the id 'q1'"),
    ],
)
def test_bad_records_are_named(folder: Path, file: str, line: Any, message: str | None) -> None:
    records = {"papers": PAPERS, "train": TRAIN, "test": TEST}
    if file == "papers" and isinstance(line, dict) and line.get("externalIds") == []:
        line = {**line, "paperId": "dd44"}
    write(folder, **{**records, file: [*records[file], line]})
    if message is None:  # an empty list is nothing, as null is
        assert len(tasks.find_papers(PaperSearchOptions(papers=str(folder))).library("train/q1", RetrieverKeys())) == 4
        return
    with pytest.raises(InputError) as error:
        tasks.find_papers(PaperSearchOptions(papers=str(folder)))
    assert message in str(error.value) and "\n" not in str(error.value)


def test_bad_records_can_be_left_out(folder: Path) -> None:
    write(folder, papers=[{"paperId": "x"}, *PAPERS], train=[{"query": "no answer"}, *TRAIN])
    assert task_ids("train", papers=str(folder), bad_data="skip") == ["train/q1"]
    with pytest.raises(InputError, match=r"env\.bad_data='skipp': valid: error, skip"):
        task_ids("train", papers=str(folder), bad_data="skipp")


@pytest.mark.parametrize("name", ["papers", "train", "test"])
def test_missing_and_empty_files_are_named(folder: Path, name: str) -> None:
    (folder / f"{name}.jsonl").write_text("")
    with pytest.raises(InputError, match=r"no usable query in it|among the papers"):
        tasks.find_papers(PaperSearchOptions(papers=str(folder)))
    (folder / f"{name}.jsonl").unlink()
    with pytest.raises(InputError, match=rf"no split '{name}'"):
        tasks.find_papers(PaperSearchOptions(papers=str(folder)))


def test_queries_about_other_papers_are_noticed(folder: Path) -> None:
    write(folder, train=[{**QUERY, "relevant": ["aa11"]}], test=[{**QUERY, "relevant": ["absent"]}])
    with pytest.raises(InputError, match=r"no relevant paper of any query is among the papers"):
        tasks.find_papers(PaperSearchOptions(papers=str(folder)))


def test_broken_citations_are_named(folder: Path) -> None:
    path = folder / "x.npz"
    built = Citations.cached(path, lambda: Citations.build(["b", "a"], [(0, 1), (1, 0)]))
    assert (
        Citations.cached(path, lambda: pytest.fail("built twice")).cited_by("b", 1) == ["a"] == built.cited_by("b", 9)
    )
    path.write_bytes(b"PK broken")
    with pytest.raises(InputError, match="remove the file"):
        Citations.cached(path, lambda: pytest.fail("built over a broken one"))


# --- the served selector

Reply = Callable[[str], dict[str, Any]]


def said(text: str) -> dict[str, Any]:
    return {"message": {"content": text}}


def with_logprobs(*tokens: tuple[str, dict[str, float]]) -> dict[str, Any]:
    content = [
        {"token": token, "logprob": 0.0, "top_logprobs": [{"token": t, "logprob": p} for t, p in top.items()]}
        for token, top in tokens
    ]
    return {"message": {"content": "".join(token for token, _ in tokens)}, "logprobs": {"content": content}}


class Server:
    """An OpenAI-compatible server on this machine, with a reply per prompt."""

    def __init__(self) -> None:
        self.reply: Reply = lambda prompt: said("True")
        self.requests: list[dict[str, Any]] = []
        self.delay, self.at_once, self.most = 0.0, 0, 0
        outer, lock = self, threading.Lock()

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                with lock:
                    outer.requests.append(body)
                    outer.at_once += 1
                    outer.most = max(outer.most, outer.at_once)
                time.sleep(outer.delay)
                with lock:
                    outer.at_once -= 1
                self.send_response(200)
                self.end_headers()
                self.wfile.write(json.dumps({"choices": [outer.reply(body["messages"][0]["content"])]}).encode())

            def log_message(self, *_: object) -> None:
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.http.handle_error = lambda *_: None  # type: ignore[method-assign]  # a client that no longer waits
        self.options: dict[str, Any] = {
            "selector": "openai",
            "selector_url": f"http://127.0.0.1:{self.http.server_port}/v1",
            "selector_model": "pasa",
        }
        threading.Thread(target=self.http.serve_forever, args=(0.01,), daemon=True).start()


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setattr(selectors, "RETRIES", 0)
    server = Server()
    yield server
    server.http.shutdown()
    server.http.server_close()


LIBRARY = Library.in_memory(
    [Paper("a", "Moss", "On {moss}."), Paper("b", "Fern", ""), Paper("c", "Owl", "")], RetrieverKeys()
)
TASK = Task("t", "Where is {moss}?", frozenset("a"))


def selector(server: Server, **options: Any) -> ServerSelector:
    made = make_selector(read_env_options(env_spec("paper_search"), {**server.options, **options}))
    assert isinstance(made, ServerSelector)
    return made


@pytest.mark.parametrize(
    ("reply", "score"),
    [
        (said("True"), 1.0),
        (said(" False\nReason: no"), 0.0),
        (said("Decision: true, as"), 1.0),
        (with_logprobs(("True", {"True": -0.5, "False": -1.5})), 0.7311),
        (
            with_logprobs(("Decision", {}), (":", {}), (" False", {" True": -2.0, " False": -1.0, " true": -4.0})),
            0.2946,
        ),
        (with_logprobs(("True", {})), 1.0),
    ],
)
def test_scores_of_the_server(server: Server, reply: dict[str, Any], score: float) -> None:
    server.reply = lambda prompt: reply
    assert wait(selector(server).scores(TASK, LIBRARY, ["a"])) == [pytest.approx(score, abs=1e-4)]
    request = server.requests[0]
    assert request["messages"][0]["content"] == PROMPT.format(query=TASK.query, title="Moss", abstract="On {moss}.")
    assert request["model"] == "pasa" and request["logprobs"] is True and request["temperature"] == 0


def test_the_server_is_asked_once_about_a_paper_and_about_several_at_once(server: Server) -> None:
    server.delay = 0.5
    one = selector(server, selector_threads=3)
    server.reply = lambda prompt: said("True" if "Fern" in prompt else "False")
    assert wait(one.scores(TASK, LIBRARY, ["a", "b", "c"])) == [0.0, 1.0, 0.0]
    assert server.most >= 2
    assert wait(one.scores(TASK, LIBRARY, ["c", "b"])) == [0.0, 1.0] and len(server.requests) == 3
    assert selector(server, selector_threads=3) is one


@pytest.mark.parametrize("reply", [said("Perhaps"), said(""), {"message": {}}, {"nothing": 1}])
def test_replies_that_say_nothing_end_the_episode(server: Server, reply: dict[str, Any]) -> None:
    server.reply = lambda prompt: reply
    with pytest.raises(JudgeError, match=r"pasa at http.*asked about: Where is \{moss\}\? -> Moss"):
        wait(selector(server).scores(TASK, LIBRARY, ["a"]))


def test_a_server_that_hangs_or_is_gone_is_named(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selectors, "TIMEOUT_S", 0.05)
    server.delay = 1.0
    with pytest.raises(JudgeError, match=r"no answer within 0\.05 s"):
        wait(selector(server).scores(TASK, LIBRARY, ["a"]))
    with pytest.raises(JudgeError, match=r"pasa at http://127\.0\.0\.1:9/v1"):
        wait(selector(server, selector_url="http://127.0.0.1:9/v1").scores(TASK, LIBRARY, ["a"]))


def test_an_episode_with_a_server(server: Server) -> None:
    server.reply = lambda prompt: with_logprobs(("True", {"True": -0.1 if "choir listening" in prompt.lower() else -9.0,
                                                          "False": -2.0}))  # fmt: skip
    env = make(**server.options)
    env.reset(options={"task_id": "generated/test/0004"})
    _, reward, _, _, info = env.step(calls(("search", "bell metal fatigue choir listening")))
    assert 0 < reward < 3 and info["metrics"]["pool"] <= 10 and len(server.requests) == 10
    before = env.snapshot()
    server.reply = lambda prompt: said("Perhaps")
    with pytest.raises(JudgeError):
        env.step(calls(("search", "glacier caves")))
    assert env.snapshot() is before


@pytest.mark.parametrize(
    "options",
    [{"selector_model": ""}, {"selector_threads": 0}, {"selector_thread": 1}],
)
def test_bad_selector_options(server: Server, options: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=next(iter(options))):
        make_selector(read_env_options(env_spec("paper_search"), {**server.options, **options}))


def test_the_key_comes_from_the_environment(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PASA_KEY", raising=False)
    with pytest.raises(InputError, match="PASA_KEY"):
        selector(server, selector_key_env="PASA_KEY")


# --- hybrid retrieval, with a real model of random weights


@pytest.fixture(scope="module")
def sentence_model(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A folder with a sentence-transformers model: a BERT of one layer over the small libraries' words."""
    pytest.importorskip("faiss", reason="needs the extra dense")
    pytest.importorskip("sentence_transformers", reason="needs the extra dense")
    from sentence_transformers import SentenceTransformer
    from transformers import BertConfig, BertModel, BertTokenizerFast

    folder = tmp_path_factory.mktemp("model")
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *SMALL_SUBJECTS, *SMALL_METHODS, *SMALL_JARGON]
    tokenizer = BertTokenizerFast(vocab={word: number for number, word in enumerate(words)})
    config = BertConfig(
        vocab_size=len(words), hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16
    )
    BertModel(config).save_pretrained(str(folder / "bert"))
    tokenizer.save_pretrained(str(folder / "bert"))
    SentenceTransformer(str(folder / "bert"), local_files_only=True).save(str(folder / "sentence"))
    return str(folder / "sentence")


def test_hybrid_retrieval_is_both_rankings_fused(sentence_model: str) -> None:
    source, task = tasks.find_papers(PaperSearchOptions(papers="small")), "small/test/006-05"
    query = source.task(task).query
    rankings = [
        source.library(task, RetrieverKeys(kind, sentence_model)).search(query, 100) for kind in ("bm25", "dense")
    ]
    expected = [name for name, _ in reciprocal_rank_fusion(rankings)][:10]
    assert source.library(task, RetrieverKeys("hybrid", sentence_model)).search(query, 10) == expected
    assert rankings[0][:10] != expected != rankings[1][:10]
    env = make(papers="small", retriever="hybrid", retriever_model=sentence_model)
    env.reset(options={"task_id": task})
    assert env.step(calls(("search", query)))[1] > 0
    assert env.state.pool_ids | env.state.dropped == set(expected)
