"""Passages: files, stores, rankings."""

import json
import os
import re
import sqlite3
import threading
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rl_agents.errors import InputError
from rl_agents.retrieval.bm25 import K1, TOKENIZER, B
from rl_agents.retrieval.passages import Hit, Passage, PassageStore, open_index, read_passages

FOXES = [
    Passage("a", "Fox", "The fox runs through the wood."),
    Passage("b", "Owl", "The owl sleeps in wood."),
    Passage("c", "Café", "Foxes drink no coffee."),
    Passage("d", "Sea", "Whales sing."),
    Passage("e", "Sand", "Camels walk."),
]
PASSAGES = PassageStore.build(FOXES)
SHARED = Path(os.environ.get("RL_AGENTS_SHARED_DATA") or Path(__file__).parents[3] / "shared" / "data")


@pytest.fixture(scope="module")
def store() -> PassageStore:
    return PASSAGES


def names(hits: list[Hit]) -> list[str]:
    return [hit.passage.id for hit in hits]


# --- the store


def test_searches_titles_and_texts_by_their_stems(store: PassageStore) -> None:
    assert names(store.search("running foxes", 5)) == ["a", "c"]
    assert names(store.search("cafe", 5)) == ["c"]  # accents fold
    assert names(store.search("wood", 1)) == ["b"]  # a is longer by a word
    assert store.search("nothing of it", 5) == store.search("", 5) == []
    assert store.get("d") == FOXES[3] and "d" in store and "x" not in store
    assert list(store) == FOXES and len(store) == 5
    with pytest.raises(KeyError):
        store.get("x")
    with pytest.raises(ValueError, match="count is 0"):
        store.search("fox", 0)


def test_equal_scores_come_in_the_order_of_the_passages() -> None:
    twins = [Passage(str(number), "", "one and the same") for number in range(30)] + [Passage("x", "", "else")] * 1
    assert names(PassageStore.build(twins).search("same", 10)) == [str(number) for number in range(10)]


@given(st.text(max_size=60) | st.sampled_from(['"', "fox OR", "NEAR(fox wood)", "x : y", "fox*", "^fox", "-fox", "\0"]))
@settings(deadline=None)
def test_any_text_is_a_query(text: str) -> None:
    hits = PASSAGES.search(text, 5)
    assert all(hit.score > 0 for hit in hits)


def test_query_syntax_is_only_words(store: PassageStore) -> None:
    for query in ("fox AND owl", "fox NOT wood", "fox NEAR/2 owl", 'title:"fox" owl', "fox* OR owl"):
        assert names(store.search(query, 5)) == names(store.search(re.sub(r"\W", " ", query), 5))
    assert "b" in names(store.search("fox NOT owl", 5))


def test_passages_of_any_text_are_kept() -> None:
    odd = PassageStore.build([Passage("\ud800", "a\0b", "c\ud800"), Passage("'; DROP TABLE passages; --", "", "")])
    assert len(odd) == 2 and names(odd.search("c", 5)) == ["?"] and "'; DROP TABLE passages; --" in odd


def test_two_passages_of_one_id() -> None:
    with pytest.raises(InputError, match="two passages with the id 'a'"):
        PassageStore.build([FOXES[0], FOXES[0]])
    assert PassageStore.build([]).search("fox", 3) == []


def test_threads_share_a_store(store: PassageStore) -> None:
    found: list[list[str]] = []
    threads = [threading.Thread(target=lambda n=n: found.append(names(store.search(f"fox {n}", 5)))) for n in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [["a", "c"]] * 16


# --- BM25 against a reference


def fts5_tokens(text: str) -> list[str]:
    """The tokens of a text in their order, from SQLite itself."""
    db = sqlite3.connect(":memory:")
    db.execute(f"CREATE VIRTUAL TABLE t USING fts5(x, tokenize='{TOKENIZER}')")
    db.execute("CREATE VIRTUAL TABLE v USING fts5vocab(t, 'instance')")
    db.execute("INSERT INTO t VALUES (?)", (text,))
    return [term for (term,) in db.execute("SELECT term FROM v ORDER BY offset")]


def compare_with_bm25s(passages: Sequence[Passage], queries: Sequence[str]) -> None:
    """Our ranking must be bm25s's over the same tokens: Robertson's method, which leaves the factor k1 + 1 out."""
    bm25s = pytest.importorskip("bm25s", reason="the reference BM25 comes with the extra dev")
    reference = bm25s.BM25(method="robertson", k1=K1, b=B)
    reference.index([fts5_tokens(f"{one.title}\n{one.text}") for one in passages], show_progress=False)
    store, places = PassageStore.build(passages), {one.id: number for number, one in enumerate(passages)}
    for query in queries:
        terms = [term for term in fts5_tokens(query) if term in reference.vocab_dict]
        scores = (K1 + 1) * reference.get_scores(terms)
        hits = store.search(query, 20)
        best = np.sort(scores)[::-1][: len(hits)]
        # Both ways: the scores of our ranking are the best there are, and each is the one of its passage.
        assert [hit.score for hit in hits] == pytest.approx(best, rel=1e-4, abs=1e-4)
        assert [hit.score for hit in hits] == pytest.approx(
            [scores[places[hit.passage.id]] for hit in hits], rel=1e-4, abs=1e-4
        )
        clear = [n for n in range(len(best)) if np.sum(np.abs(scores - best[n]) < 1e-3) == 1]
        assert [places[hits[n].passage.id] for n in clear] == [int(np.argmin(np.abs(scores - best[n]))) for n in clear]


def test_ranks_words_at_random_as_bm25s_does() -> None:
    rng = np.random.default_rng(0)
    words = [f"w{number}" for number in range(300)]

    def text(length: int) -> str:
        return " ".join(words[min(int(n), 300) - 1] for n in rng.zipf(1.3, length))

    passages = [Passage(str(n), text(2), text(int(rng.integers(5, 60)))) for n in range(400)]
    compare_with_bm25s(passages, [text(6) for _ in range(60)])


@pytest.mark.skipif(not (SHARED / "qa").is_dir(), reason="no shared data")
def test_ranks_real_passages_as_bm25s_does() -> None:
    passages = [passage for passage, _ in read_passages(SHARED / "qa" / "hotpotqa_passages.json")][:1500]
    questions = json.loads((SHARED / "qa" / "hotpotqa_matched_questions.json").read_text())[::10]
    compare_with_bm25s(passages, [record["question"] for record in questions])


# --- files


RECORDS = [
    {"id": "x", "title": "Fox", "text": "runs"},
    {"_id": 7, "text": "walks"},
    {"id": 3, "contents": '"Owl"\nsleeps\nlong'},
    {"title": "Sea", "text": "sings"},
]
READ = [
    Passage("x", "Fox", "runs"),
    Passage("7", "", "walks"),
    Passage("3", "Owl", "sleeps\nlong"),
    Passage("4", "Sea", "sings"),
]


@pytest.mark.parametrize("name", ["p.json", "p.jsonl"])
def test_all_forms_of_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv("RL_AGENTS_CACHE", str(tmp_path / "cache"))
    path = tmp_path / name
    lines = "\n\n".join(map(json.dumps, RECORDS))
    path.write_text(json.dumps(RECORDS) if name.endswith(".json") else lines)
    read = list(read_passages(path))
    assert [passage for passage, _ in read] == READ and read[-1][1] == 1.0
    store = PassageStore.open(path)
    assert list(store) == READ and names(store.search("owl sings", 5)) == ["4", "3"]
    assert PassageStore.open(path) is store and store.path is not None
    stamp = store.path.stat().st_mtime_ns
    open_index.cache_clear()
    again = PassageStore.open(path)
    assert again is not store and again.path == store.path and store.path.stat().st_mtime_ns == stamp
    path.write_text(json.dumps(RECORDS[:1]) if name.endswith(".json") else json.dumps(RECORDS[0]))
    assert list(PassageStore.open(path)) == READ[:1]


def test_a_store_in_a_file_is_the_store_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RL_AGENTS_CACHE", str(tmp_path))
    kept = PassageStore.cached("foxes", "1", lambda: ((passage, None) for passage in FOXES))
    for query in ("fox", "wood coffee", "the"):
        assert kept.search(query, 5) == PASSAGES.search(query, 5)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"text": "a"}\n{"text": ', r"p.jsonl, line 2: not JSON"),
        ('{"text": "a"}\n[1]', r"p.jsonl, line 2: a passage is list, not an object"),
        ('{"text": "a"}\n\n[1]', r"p.jsonl, line 3: a passage is list, not an object"),
        ('{"txt": "a"}', r"p.jsonl, line 1: no 'text'; it has: txt"),
        ('{"text": [3]}', r"p.jsonl, line 1: 'text' is \[3\], not a text"),
        ('{"text": "a", "id": []}', r"p.jsonl, line 1: id is \[\], not a text or a number"),
        ('{"text": "a", "id": "1"}\n{"text": "b", "id": 1}', r"two passages with the id '1'"),
        ('{"text": "\\ud800"}', r"p.jsonl, line 1: text with a lone surrogate"),
    ],
)
def test_bad_files_are_one_line_each(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, message: str) -> None:
    monkeypatch.setenv("RL_AGENTS_CACHE", str(tmp_path / "cache"))
    path = tmp_path / "p.jsonl"
    path.write_text(text)
    with pytest.raises(InputError, match=message) as error:
        PassageStore.open(path)
    assert "\n" not in str(error.value)
    assert not list((tmp_path / "cache" / "passages").glob("*.sqlite"))


def test_a_missing_file_a_broken_index_and_bytes_that_are_no_text(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("RL_AGENTS_CACHE", str(tmp_path / "cache"))
    with pytest.raises(InputError, match=r"none.jsonl: no such file"):
        PassageStore.open(tmp_path / "none.jsonl")
    path = tmp_path / "p.jsonl"
    path.write_bytes(b'{"text": "\xff"}')
    with pytest.raises(InputError, match="line 1: not UTF-8"):
        PassageStore.open(path)
    path.write_text(json.dumps(RECORDS[0]))
    store = PassageStore.open(path)
    assert store.path is not None
    store.path.write_bytes(b"x" * 100)
    open_index.cache_clear()
    with pytest.raises(InputError, match="this index is broken; remove it"):
        PassageStore.open(path)
