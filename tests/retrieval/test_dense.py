"""Dense retrieval with a real sentence-transformers model of random weights; skipped without the extra `dense`."""

import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("faiss", reason="needs the extra dense")
pytest.importorskip("sentence_transformers", reason="needs the extra dense")

from tiny_models import write_sentence_model

from rl_agents.errors import InputError
from rl_agents.retrieval.dense import DenseRetriever, is_e5
from rl_agents.retrieval.passages import Passage, PassageStore

WORDS = ("fox", "owl", "wood", "sea", "runs", "sleeps", "whale", "sings", "query", "passage", ":")
PASSAGES = [Passage(name, "", text) for name, text in (("a", "fox runs"), ("b", "owl sleeps"), ("c", "whale sings"))]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A folder with a BERT of one layer."""
    return write_sentence_model(tmp_path_factory.mktemp("model"), WORDS)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RL_AGENTS_CACHE", str(tmp_path / "cache"))
        yield


def test_the_nearest_passage_is_the_same_text(model: str) -> None:
    store = PassageStore.build(PASSAGES)
    retriever = DenseRetriever(store, model)
    for passage in PASSAGES:
        hits = retriever.search(passage.text, 2)
        assert hits[0].passage == passage and hits[0].score == pytest.approx(1.0, abs=1e-5) and len(hits) == 2
    scores = [hit.score for hit in retriever.search("sea", 3)]
    assert scores == sorted(scores, reverse=True) and len(retriever.search("sea", 10)) == 3
    # The cosines are those of the model's own vectors.
    vectors = retriever._model.encode(["sea", *(p.text for p in PASSAGES)])
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    assert sorted((unit[1:] @ unit[0]).tolist(), reverse=True) == pytest.approx(scores, abs=1e-5)


def test_an_e5_model_gets_its_prefixes(model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    e5 = shutil.copytree(model, tmp_path / "e5-large-v2")
    (e5 / "config_sentence_transformers.json").unlink()
    store = PassageStore.build(PASSAGES)
    own, said = DenseRetriever(store, str(e5)), capsys.readouterr().err
    asked = DenseRetriever(PassageStore.build(replace(one, text=f"passage: {one.text}") for one in PASSAGES), model)
    assert [hit.score for hit in own.search("fox", 3)] == [hit.score for hit in asked.search("query: fox", 3)]
    assert own.search("fox", 1)[0].score != pytest.approx(
        DenseRetriever(store, model).search("fox", 1)[0].score, abs=1e-4
    )
    assert "is an E5 model" in said and capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("name", "config", "prompts", "e5"),
    [
        ("e5-base", {}, {}, True),
        ("multilingual-e5-small", {}, {}, True),
        ("mine", {"_name_or_path": "intfloat/e5-large-v2"}, {}, True),
        ("bge-large-en-v1.5", {"_name_or_path": "BAAI/bge-large-en-v1.5"}, {}, False),
        ("multilingual-e5-large-instruct", {}, {}, False),
        ("some5-model", {}, {}, False),
        ("e5-base", {}, {"query": "query: ", "document": "passage: "}, False),
    ],
)
def test_what_is_an_e5_model(name: str, config: dict, prompts: dict, e5: bool, tmp_path: Path) -> None:
    folder = tmp_path / name
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "config_sentence_transformers.json").write_text(json.dumps({"prompts": prompts}))
    assert is_e5(str(folder)) == e5
    assert not is_e5(str(tmp_path / "nowhere"))


def test_vectors_of_a_file_are_kept(model: str, tmp_path: Path) -> None:
    path = tmp_path / "p.jsonl"
    path.write_text("\n".join(json.dumps({"id": p.id, "text": p.text}) for p in PASSAGES))
    store = PassageStore.open(path)
    first = DenseRetriever(store, model).search("owl", 3)
    kept = list((tmp_path / "cache" / "passages").glob("*.faiss"))
    stamp = kept[0].stat().st_mtime_ns
    assert DenseRetriever(store, model).search("owl", 3) == first and len(kept) == 1
    assert kept[0].stat().st_mtime_ns == stamp


def test_what_is_wrong_with_a_model_is_one_line(tmp_path: Path) -> None:
    store = PassageStore.build(PASSAGES)
    with pytest.raises(InputError, match=r"env\.x=none: no such model folder"):
        DenseRetriever(store, "none", "env.x")
    with pytest.raises(InputError, match="cannot be loaded") as error:
        DenseRetriever(store, str(tmp_path))
    assert "\n" not in str(error.value)


def test_the_environment_takes_it(model: str) -> None:
    from rl_agents.envs.base import make_env

    env = make_env("multihop_qa", {"retriever": "dense", "retriever_model": model})
    _, info = env.reset(seed=0)
    env.step('<tool_call>{"name": "search", "arguments": {"query": "fox"}}</tool_call>')
    assert len(env.state.seen) == 3 and info["valid"]
