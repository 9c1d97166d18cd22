"""Multi-hop QA on question files: the published forms, splits, corpora, real data."""

from __future__ import annotations

import json
import os
import pickle
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from environments import with_keywords

from rl_agents.envs.base import named_env
from rl_agents.envs.multihop_qa import MultihopQAOptions, demonstrations
from rl_agents.envs.multihop_qa.questions import read_questions
from rl_agents.envs.multihop_qa.tasks import Source, Task, find_source
from rl_agents.errors import InputError
from rl_agents.tools.calls import ToolCall, write_response

make = partial(named_env, "multihop_qa")


def source_of(questions: str, test_questions: str = "", passages: str = "") -> Source:
    return find_source(MultihopQAOptions(questions=questions, test_questions=test_questions, passages=passages))


play = with_keywords("multihop_qa", demonstrations.EXPERT.play)

SHARED = Path(os.environ.get("RL_AGENTS_SHARED_DATA") or Path(__file__).parents[3] / "shared" / "data") / "qa"
needs_shared_data = pytest.mark.skipif(not SHARED.is_dir(), reason="no shared data")


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Indexes of this module's own, so that no older one is read."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RL_AGENTS_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


def search(query: str) -> str:
    return write_response("", [ToolCall("search", {"query": query})])


HOTPOT = {
    "_id": "h1",
    "question": "Which river flows through the birthplace of Ada?",
    "answer": "Oder",
    "type": "bridge",
    "level": "hard",
    "supporting_facts": [["Ada", 0], ["Kelm", 1]],
    "context": [
        ["Ada", ["Ada was born in Kelm.", " She was a potter."]],
        ["Kelm", ["Kelm is old.", " The Oder flows there."]],
    ],
}
FLAT = {
    **{key: HOTPOT[key] for key in ("question", "answer", "type")},
    "id": "h2",
    "supporting_facts": {"title": ["Ada"], "sent_id": [0]},
    "context": {"title": ["Ada", "Bo"], "sentences": [["Ada was born in Kelm.", " She was a potter."], ["Bo."]]},
}
MUSIQUE = {
    "id": "m1",
    "question": "Who founded the town of Ada's birth?",
    "answer": "Cy",
    "answer_aliases": ["Cyrus", "Cy"],
    "answerable": True,
    "paragraphs": [
        {"idx": 0, "title": "Kelm", "paragraph_text": "Cy founded Kelm.", "is_supporting": True},
        {"idx": 1, "title": "Kelm", "paragraph_text": "Kelm has a mill.", "is_supporting": False},
    ],
}
PLAIN = {"question": "Q?", "golden_answers": ["A", "B"], "passages": [{"id": "p", "text": "t"}], "supporting": ["p"]}


def written(path: Path, *records: Any) -> Path:
    text = json.dumps(records) if path.suffix == ".json" else "\n".join(map(json.dumps, records))
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize("suffix", ["json", "jsonl"])
def test_all_forms_of_questions(tmp_path: Path, suffix: str) -> None:
    path = written(tmp_path / f"q.{suffix}", HOTPOT, FLAT, MUSIQUE, {**MUSIQUE, "id": "m2", "answerable": False}, PLAIN)
    entries = [entry for entry, _ in read_questions(path)]
    hotpot, flat, musique, plain = (entry.question for entry in entries)
    assert (hotpot.id, hotpot.answers, hotpot.kind) == ("h1", ("Oder",), "bridge")
    assert [p.text for p in entries[0].passages][1] == "Kelm is old. The Oder flows there."
    assert len(hotpot.supporting) == 2 and flat.supporting == hotpot.supporting[:1]
    assert musique.answers == ("Cy", "Cyrus") and len(musique.supporting) == 1
    assert (plain.id, plain.answers, plain.supporting) == ("5", ("A", "B"), ("p",))
    source = source_of(str(path), str(path))
    assert source.ids("train") == source.ids("test") == ("h1", "h2", "m1", "5")
    store = source.task("h1").store
    assert len(store) == 6 and store is source.task("m1").store  # h1 and h2 share the passage on Ada
    task = source.task("h1").question
    assert {store.get(name).title for name in task.supporting} == {"Ada", "Kelm"}
    dialogue, info = play("h1", questions=str(path), test_questions=str(path))
    assert info["success"] and len(dialogue) == 2 and '"Ada"' in dialogue[0][1] and '"Kelm"' in dialogue[0][1]


def test_splits_of_files(tmp_path: Path) -> None:
    many = [{**HOTPOT, "_id": f"q{number}"} for number in range(40)]
    path, other = written(tmp_path / "a.json", *many), written(tmp_path / "b.json", {**HOTPOT, "_id": "z"})
    source = source_of(str(path))
    assert (len(source.ids("train")), len(source.ids("test"))) == (36, 4)
    assert {*source.ids("train"), *source.ids("test")} == {f"q{number}" for number in range(40)}
    both = source_of(str(path), str(other))
    assert (len(both.ids("train")), both.ids("test")) == (40, ("z",))
    with pytest.raises(InputError, match="one question cannot be split"):
        source_of(str(other))
    again = written(tmp_path / "c.json", {**HOTPOT, "_id": "q3"})
    with pytest.raises(InputError, match="the question id 'q3' occurs twice"):
        source_of(str(path), str(again))


def test_a_corpus_of_its_own(tmp_path: Path) -> None:
    questions = written(
        tmp_path / "q.jsonl", {"question": "Who?", "answer": "Bo"}, {"question": "What?", "answer": "x"}
    )
    with pytest.raises(InputError, match=r"without passages; name a corpus with env\.passages"):
        source_of(str(questions))
    corpus = written(tmp_path / "c.jsonl", {"id": "1", "contents": '"Who"\nBo did it.'}, {"text": "Nobody."})
    env = make(questions=str(questions), passages=str(corpus))
    _, info = env.reset(options={"task_id": "1"})
    assert "support_found" not in info["metrics"]
    observation, *_, info = env.step(search("who did it"))
    assert "[1] Who\nBo did it." in observation and info["progress"] is None
    assert env.step("<answer>Bo</answer>")[1] == 1.0
    options = {"questions": str(questions), "test_questions": str(questions), "passages": str(corpus)}
    assert play("1", **options)[1]["success"] and not play("2", **options)[1]["success"]


def test_supporting_passages_that_the_corpus_lacks_are_not_waited_for(tmp_path: Path) -> None:
    questions = written(tmp_path / "q.json", HOTPOT, {**HOTPOT, "_id": "h2"})
    corpus = written(tmp_path / "c.jsonl", {"id": "1", "title": "Ada", "text": "Ada was born in Kelm."})
    env = make(questions=str(questions), test_questions=str(questions), passages=str(corpus))
    _, info = env.reset(options={"task_id": "h1"})
    assert env.state.task.question.supporting == () and "support_found" not in info["metrics"]


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ({"question": "q"}, "line 2: no 'answer' in the question; it has: question"),
        ({"answer": "a", "text": "q"}, "line 2: 'question' should be a text; there is none"),
        ({"question": " ", "answer": "a"}, "line 2: 'question' should be a text"),
        (
            {"question": "q", "answer": []},
            "line 2: answer holds no text; 1 of 2 questions cannot be used",
        ),
        ({"question": "q", "answer": ["", " "]}, "line 2: answer holds no text"),
        ({"question": "q", "answer": ["a", None]}, "line 2: answer holds something that is no text"),
        ({"question": "q", "answer": 7}, "line 2: answer is int"),
        ({**HOTPOT, "context": [["Ada"]]}, r"line 2: context is not a list of \[title, \[sentences\]\]"),
        ({**HOTPOT, "context": "x"}, "line 2: context is str, not a list"),
        ({**HOTPOT, "context": [["Ada", "x"]]}, "the sentences of 'Ada' are not a list of texts"),
        ({**HOTPOT, "supporting_facts": [3]}, "line 2: supporting_facts is not a list of"),
        ({**MUSIQUE, "paragraphs": [{"title": "x"}]}, "line 2: 'paragraph_text' should be a text; there is none"),
        ({**PLAIN, "passages": ["x"]}, "line 2: a passage is str, not an object"),
        ([1], "line 2: a question is list, not an object"),
    ],
)
def test_bad_questions_are_one_line_each(tmp_path: Path, record: Any, message: str) -> None:
    path = written(tmp_path / "q.jsonl", HOTPOT, record)
    with pytest.raises(InputError, match=message) as error:
        source_of(str(path))
    assert "\n" not in str(error.value) and str(path) in str(error.value)


def test_few_bad_questions_are_named_and_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good = [{**HOTPOT, "_id": f"q{number}"} for number in range(198)]
    path = written(
        tmp_path / "q.jsonl", *good[:3], {**HOTPOT, "answer": ""}, *good[3:], {"question": "", "answer": "a"}
    )
    source = source_of(str(path))
    assert len(source.ids("train")) + len(source.ids("test")) == 198 and len(source.task("q0").store) == 2
    said = capsys.readouterr().err
    assert f"2 of 200 questions left out: {path}, line 4: answer holds no text; {path}, line 200: 'question'" in said
    with pytest.raises(InputError, match=r"line 4: answer holds no text$"):
        find_source(MultihopQAOptions(questions=str(path), max_bad_share=0.0))
    with pytest.raises(InputError, match=r"line 4: .*; 2 of 200 questions cannot be used, more than env"):
        find_source(MultihopQAOptions(questions=str(path), max_bad_share=0.005))


def test_blank_aliases_are_dropped_and_question_may_have_a_capital(tmp_path: Path) -> None:
    record = {"Question": "Who?", "answer": "Cy", "answer_aliases": ["", "Cyrus", " "], "passages": PLAIN["passages"]}
    (entry,) = [entry for entry, _ in read_questions(written(tmp_path / "q.jsonl", record))]
    assert (entry.question.question, entry.question.answers) == ("Who?", ("Cy", "Cyrus"))


def test_a_state_in_a_file_s_question_can_be_pickled(tmp_path: Path) -> None:
    path = written(tmp_path / "q.json", HOTPOT, FLAT)
    env, other = (make(questions=str(path), test_questions=str(path)) for _ in range(2))
    env.reset(options={"task_id": "h1"})
    env.step(search("Ada"))
    other.reset(options={"task_id": "h2"})
    other.restore(pickle.loads(pickle.dumps(env.snapshot())))
    assert other.step(search("Kelm")) == env.step(search("Kelm"))


@needs_shared_data
def test_recall_on_real_questions() -> None:
    """HotpotQA: 453 questions with an answer other than yes or no, 4,830 passages; independent figures beside ours."""
    file = str(SHARED / "hotpotqa_matched_questions.json")
    source = source_of(file, file, str(SHARED / "hotpotqa_passages.json"))
    tasks_ = [source.task(task_id) for task_id in source.ids("test")]
    open_ = [task for task in tasks_ if task.question.answers[0].lower() not in ("yes", "no")]
    assert (len(tasks_), len(open_)) == (513, 453)

    def recall(count: int) -> float:
        def found(task: Task) -> bool:
            hits = task.store.search(task.question.question, count)
            answer = task.question.answers[0].lower()
            return any(answer in f"{hit.passage.title} {hit.passage.text}".lower() for hit in hits)

        return sum(map(found, open_)) / len(open_)

    for count, expected in ((3, 0.73), (5, 0.83), (10, 0.90)):
        assert recall(count) == pytest.approx(expected, abs=0.015)


@needs_shared_data
@pytest.mark.parametrize(
    ("name", "questions", "corpus"),
    [
        ("hotpot_dev_v1_simplified", 7405, "hotpotqa_passages"),
        ("sds_2wiki", 500, "2wikimultihopqa_corpus"),
        ("sds_musique", 500, "musique_passages_psirag"),
        ("sds_bamboogle", 125, "nq_passages_psirag"),
    ],
)
def test_real_question_sets_load(name: str, questions: int, corpus: str) -> None:
    path = SHARED / f"{name}.json"
    env = make(questions=str(path), passages=str(SHARED / f"{corpus}.json"))
    source = source_of(str(path), "", str(SHARED / f"{corpus}.json"))
    assert len(source.ids("train")) + len(source.ids("test")) == questions
    question, _ = env.reset(options={"task_id": source.ids("test")[0]})
    observation, *_ = env.step(search(question))
    assert "[3]" in observation
