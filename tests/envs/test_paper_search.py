"""PaperSearch: rewards by hand, libraries, the episode, fuzzed calls, files, citations."""

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from environments import starts, with_keywords

from rl_agents.envs.base import named_env
from rl_agents.envs.paper_search import PaperSearchOptions, demonstrations, state, tasks
from rl_agents.envs.paper_search import env as prompts
from rl_agents.envs.paper_search.demonstrations import SMALL, written
from rl_agents.envs.paper_search.env import PaperSearchEnv
from rl_agents.envs.paper_search.library import Library, Paper, Task
from rl_agents.envs.paper_search.state import CallRunner, Refused, SearchState, discovery_reward, measures, relevance
from rl_agents.errors import InputError

make = partial(named_env, "paper_search")
task_ids = with_keywords("paper_search", tasks.task_ids)
play = with_keywords("paper_search", demonstrations.EXPERT.play)

STYLES = ("paper", "compact")
TASK = "generated/test/0004"
started = starts("paper_search", TASK)
SMALL_TASK = "small/test/006-05"


#: Five papers answer "moss"; a cites d and e, f cites a.
PAPERS = (
    Paper("a", "moss one", "", ("d", "e", "elsewhere")), Paper("b", "moss two", ""), Paper("c", "moss three", ""),
    Paper("d", "fern", ""), Paper("e", "moss four", ""), Paper("f", "fungus", "", ("a",)), Paper("g", "moss five", ""),
)  # fmt: skip
SCORES = {"a": 0.9, "b": 0.25, "c": 0.5, "d": 0.75, "e": 0.125, "f": 1.0, "g": 0.005}


def hand_turn(**prices: float) -> tuple[CallRunner, list[str]]:
    """A turn with the scores above, and the papers whose score was asked for."""
    asked: list[str] = []

    def score(task: Task, library: Library, paper_id: str) -> float:
        asked.append(paper_id)
        return SCORES[paper_id]

    begun = SearchState(Task("t", "moss", frozenset("acdf")))
    return CallRunner(begun, Library.in_memory(PAPERS), PaperSearchOptions(**prices), score), asked


def small_env(**options: object) -> PaperSearchEnv:
    return started(SMALL_TASK, **{**SMALL, **options})


def calls(*pairs: tuple[str, str]) -> str:
    return written(pairs, compact=False)


def test_rules_by_hand() -> None:
    assert discovery_reward([], 0.1) == -0.1
    assert discovery_reward([0.25, 1.0, 0.5, 0.75], 0.0) == 2.25  # 1 + 0.75 + 0.5
    assert discovery_reward([1.0, 1.0, 1.0, 1.0], 0.25) == 2.75
    for kept, annotated, expected in (
        ("", "ab", (0, 0, 0)), ("ab", "", (0, 0, 0)), ("abx", "abcd", (2 / 3, 1 / 2, 4 / 7)),
        ("a", "abcd", (1, 1 / 4, 2 / 5)),
    ):  # fmt: skip
        found = measures(set(kept), set(annotated))
        assert (found.precision, found.recall, found.f1) == pytest.approx(expected)
    wanted, facets = ("moss", "kite", "island"), dict.fromkeys("abcd", ("fern", "sail", "town"))
    facets |= {"a": ("moss", "kite", "island"), "b": ("moss", "kite", "town"), "c": ("fern", "kite", "town")}
    library = Library.in_memory([Paper(name, name, "", (), own) for name, own in facets.items()])
    scores = [relevance(Task("t", "", frozenset("d"), wanted), library, name) for name in "abcd"]
    assert scores == pytest.approx([1, 8 / 27, 1 / 27, 0])
    assert [relevance(Task("t", "", frozenset("d")), library, name) for name in "ad"] == [0, 1]


def test_an_episode_by_hand() -> None:
    # "moss" finds a, b, c, e, g, but g scores 0.005 and is dropped: 0.9 + 0.5 + 0.25
    turn, asked = hand_turn()
    found = turn.search({"query": "moss"})
    assert [paper.paper_id for paper in found] == ["a", "b", "c", "e"]
    assert turn.reward == pytest.approx(1.65)
    # a is cited by f and cites d and e; e is there already: 1.0 + 0.75
    assert [paper.paper_id for paper in turn.expand({"paper_id": " a "})] == ["f", "d"]
    assert turn.reward == pytest.approx(1.65 + 1.75)
    # everything again, in other letters: -0.5; nothing else changes
    for call, reason in (
        (lambda: turn.search({"query": "  MOSS "}), state.REPEATED_QUERY),
        (lambda: turn.search({"query": " \n"}), state.EMPTY_QUERY),
        (lambda: turn.expand({"paper_id": "a"}), state.REPEATED_EXPANSION),
        (lambda: turn.expand({"paper_id": "g"}), state.UNKNOWN_PAPER),
    ):
        with pytest.raises(Refused) as refused:
            call()
        assert refused.value.reason == reason
    assert turn.reward == pytest.approx(3.4 - 4 * 0.5)
    assert turn.state.refused == 4 and turn.ran == 6 and len(turn.state.pool) == 6
    # f cites a alone, which is known: an expansion that finds nothing is allowed, and earns nothing
    assert turn.expand({"paper_id": "f"}) == () and turn.reward == pytest.approx(1.4)
    # nobody is asked about a paper twice, dropped ones included
    assert turn.search({"query": "moss five"}) == () and len(asked) == len(set(asked)) == 7
    # kept: a, c, d, f of the annotated a, c, d, f
    assert turn.state.kept == frozenset("acdf") and measures(turn.state.kept, turn.state.task.relevant).f1 == 1.0


def test_costs_and_limits() -> None:
    turn, _ = hand_turn(search_cost=0.1, expand_cost=0.2)
    turn.search({"query": "moss"})
    turn.expand({"paper_id": "a"})
    with pytest.raises(Refused):
        turn.expand({"paper_id": "a"})
    assert turn.reward == pytest.approx(1.65 - 0.1 + 1.75 - 0.2 - 0.5)
    library = Library.in_memory(PAPERS)
    assert library.neighbors("a", 1, 1) == ["f", "d"]
    assert library.neighbors("a", 0, 9) == ["d", "e"]
    assert library.neighbors("a", 9, 0) == ["f"]
    assert library.neighbors("nobody", 9, 9) == [] and "nobody" not in library and "a" in library
    assert "a\0" not in library and "a" * 1000 not in library


def test_papers_and_tasks_that_do_not_exist() -> None:
    with pytest.raises(InputError, match=r"env\.papers="):
        make(papers="no/such/folder")
    for papers, task_id in (("small", "small/test/006-99"), ("generated", "generated/test/9999")):
        with pytest.raises(InputError, match="unknown paper_search task"):
            make(papers=papers).reset(options={"task_id": task_id})


def test_calls_of_one_turn() -> None:
    env = started()
    observation, reward, terminated, truncated, info = env.step(
        "<analysis>two sides</analysis>" + calls(("search", "bell metal fatigue"), ("search", "choir listening"))
    )
    assert observation.count("<tool_response>") == 2 and "Turns left: 4." in observation
    assert reward > 0 and info["valid"] and not terminated and not truncated
    assert info["metrics"]["searches"] == 2 and info["query"] == "bell metal fatigue choir listening"
    listed = observation.split("[", 1)[1].split("]")[0]
    _, _, _, _, info = env.step(calls(("expand", listed), ("expand", listed), ("expand", "G99999")))
    assert info["valid"] and info["metrics"]["expansions"] == 1 and info["metrics"]["refused_calls"] == 2
    query = ("search", "bell metal fatigue")
    assert started().step(calls(query, query))[1] == pytest.approx(started().step(calls(query))[1] - 0.5)
    env = started(max_calls=2)
    observation, _, _, _, info = env.step(calls(*(("search", word) for word in ("moss", "bell", "kite", "dye"))))
    assert info["metrics"]["searches"] == 2 and info["valid"] and observation.count("not run") == 2
    env = started()
    broken = '<tool_call>{"name": "expand", "arguments": {"paper_id": 7}}</tool_call>'
    unknown = '<tool_call>{"name": "fly", "arguments": {}}</tool_call>'
    observation, reward, _, _, info = env.step(calls(("search", "moss calendars")) + broken + unknown)
    assert not info["valid"] and info["metrics"]["malformed"] == 2 and info["metrics"]["searches"] == 1
    assert "there is no tool 'fly'" in observation and "do not fit its schema" in observation and reward > 0
    observation, reward, terminated, _, info = started().step("<answer>done</answer><answer>x</answer>")
    assert observation.startswith("Your last response was not valid: ") and "Turns left: 4." in observation
    assert reward == 0 and not terminated and not info["valid"] and info["metrics"]["malformed"] == 1
    assert small_env().step("<tool_call>{</tool_call>")[0] == "invalid"


def test_the_anchor_names_the_pool_in_whatever_order_it_was_found() -> None:
    one, other = calls(("search", "moss")), calls(("search", "bell"))
    first, second = started(), started()
    first.step(one), second.step(other)
    assert first.step(other)[4]["anchor"] == second.step(one)[4]["anchor"]
    assert first.state.pool_ids == second.state.pool_ids


def test_long_lists_keep_the_best(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prompts, "MAX_LISTED", 3)
    env = started()
    observation, *_ = env.step(calls(("search", "bell metal fatigue choir listening")))
    best = sorted((found.score for found in env.state.pool), reverse=True)[:3]
    shown = [found.score for found in env.state.pool if f"[{found.paper_id}]" in observation]
    assert sorted(shown, reverse=True) == best and "... and 7 more, not listed" in observation
    assert "10 papers added" in observation


@pytest.mark.parametrize("style", STYLES)
def test_a_rebuilt_prompt_holds_the_whole_state(style: str) -> None:
    env = started(SMALL_TASK, **{**SMALL, "prompt": style})
    env.step(calls(("search", env.state.task.query)))
    first = env.state.pool[0]
    env.step(calls(("expand", first.paper_id)))
    text = env.render_window("", (), "")
    assert all(found.paper_id in text and found.title in text for found in env.state.pool)
    assert f"expand {first.paper_id}" in text and env.state.task.query in text


RECORDS = [
    {"paperId": "aa11", "title": "Moss  clocks", "abstract": "We date walls by moss.", "year": 2017,
     "externalIds": {"ArXiv": "1706.00001", "DOI": "10/x"},
     "references": [{"paperId": "bb22"}, {"paperId": None}, None, "elsewhere"]},
    {"paperId": "bb22", "title": "Walls", "abstract": None, "references": ["aa11", "1706.00001", "bb22"]},
    {"paperId": "cc33", "title": "Moss and ferns", "abstract": "Ferns.", "externalIds": None, "references": None},
]  # fmt: skip
TRAIN = [{"id": "q1", "query": "How old is moss?", "relevant": ["1706.00001", "cc33", "absent"]}]
TEST = [{"qid": 7, "question": "What is a wall?", "answer_arxiv_id": ["bb22"], "answer": ["Walls"]}]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("RL_AGENTS_CACHE", str(tmp_path / "cache"))
    return write(tmp_path / "mine")


def write(folder: Path, papers: Any = RECORDS, train: Any = TRAIN, test: Any = TEST) -> Path:
    folder.mkdir(exist_ok=True)
    for name, records in (("papers", papers), ("train", train), ("test", test)):
        lines = [record if isinstance(record, str) else json.dumps(record) for record in records]
        (folder / f"{name}.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder


def test_a_folder_is_searched(folder: Path) -> None:
    assert task_ids("train", papers=str(folder)) == ["train/q1"]
    assert task_ids("test", papers=str(folder)) == ["test/7"]
    env = make(papers=str(folder))
    observation, _ = env.reset(options={"task_id": "train/q1"})
    assert "How old is moss?" in observation
    # The annotation is the score: 1.0 for each of the two that are there, 0 is dropped.
    observation, reward, _, _, info = env.step(calls(("search", "moss clocks and ferns")))
    assert reward == 2.0 and "[1706.00001] Moss clocks" in observation and "[cc33] Moss and ferns" in observation
    assert info["metrics"]["recall"] == pytest.approx(2 / 3) and info["metrics"]["f1"] == pytest.approx(0.8)
    # An unknown reference and one to itself are no citations, two names of one paper are one.
    library = tasks.find_papers(PaperSearchOptions(papers=str(folder))).library("train/q1")
    assert library.neighbors("1706.00001", 9, 9) == ["bb22"] and library.links("bb22")[1] == ["1706.00001"]
    assert library.neighbors("cc33", 9, 9) == [] and "aa11" not in library


def test_the_index_is_built_once_and_again_when_the_file_changes(folder: Path) -> None:
    def size() -> int:
        return len(tasks.find_papers(PaperSearchOptions(papers=str(folder))).library("train/q1"))

    def made() -> set[Path]:
        return {path for path in (folder.parent / "cache").rglob("*") if path.suffix == ".sqlite"}

    assert size() == 3
    first = made()
    assert len(first) == 2
    assert size() == 3 and made() == first
    write(folder, papers=[*RECORDS, {"paperId": "dd44", "title": "New", "abstract": "x"}])
    assert size() == 4 and len(made()) == 4


PAPER, QUERY = RECORDS[2], TRAIN[0]


@pytest.mark.parametrize(
    ("file", "line", "message"),
    [
        ("papers", "{", "papers.jsonl, line 4: "),
        ("papers", {"title": "x"}, "line 4: no 'paperId'; it has: title"),
        ("papers", {**PAPER, "paperId": "a b"}, "line 4: paperId is 'a b', not an id"),
        ("papers", {**PAPER, "references": "aa11"}, "line 4: 'references' is not a list"),
        ("papers", PAPER, "two passages with the id 'cc33'"),
        ("train", {"query": "x"}, "train.jsonl, line 2: 'relevant' is not a list"),
        ("train", {"id": "q2", "relevant": ["cc33"]}, "line 2: no 'question'; it has: id, relevant"),
    ],
)
def test_bad_records_are_named(folder: Path, file: str, line: Any, message: str) -> None:
    records = {"papers": RECORDS, "train": TRAIN, "test": TEST}
    write(folder, **{**records, file: [*records[file], line]})
    with pytest.raises(InputError) as error:
        tasks.find_papers(PaperSearchOptions(papers=str(folder)))
    assert message in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize("name", ["papers", "train", "test"])
def test_missing_and_empty_files_are_named(folder: Path, name: str) -> None:
    (folder / f"{name}.jsonl").write_text("")
    with pytest.raises(InputError, match=r"no usable query in it|among the papers"):
        tasks.find_papers(PaperSearchOptions(papers=str(folder)))
    (folder / f"{name}.jsonl").unlink()
    with pytest.raises(InputError, match=rf"no split '{name}'"):
        tasks.find_papers(PaperSearchOptions(papers=str(folder)))
