"""Multi-hop QA: scores, worlds, the episode, players, and question files in their published forms."""

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from environments import with_keywords
from envs.alfworld.games import SHARED_DATA

from rl_agents.envs.base import named_env
from rl_agents.envs.multihop_qa import MultihopQAOptions, demonstrations
from rl_agents.envs.multihop_qa.env import SEARCH
from rl_agents.envs.multihop_qa.tasks import Source, Task, find_source
from rl_agents.envs.questions import exact_match, f1, read_questions
from rl_agents.errors import InputError
from rl_agents.tools.calls import ToolCall, write_response

make = partial(named_env, "multihop_qa")
play = with_keywords("multihop_qa", demonstrations.EXPERT.play)

CHAIN, COMPARISON = "test/000/08", "test/000/14"  # three facts in turn; two at once


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Indexes of this module's own, so that no older one is read."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RL_AGENTS_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


def searches(*queries: str) -> str:
    return write_response("", [ToolCall("search", {"query": query}) for query in queries])


@pytest.mark.parametrize(
    ("answer", "references", "exact", "overlap"),
    [
        ("The Beatles!", ["beatles"], 1.0, 1.0),
        ("an  Apple a day", ["apple day"], 1.0, 1.0),
        ("New York City", ["York"], 0.0, 0.5),  # P 1/3, R 1
        ("the cat sat", ["cat sat down there"], 0.0, 2 / 3),  # P 2/2, R 2/4
        ("a b b", ["b b b"], 0.0, 0.8),  # P 2/2 without the article, R 2/3
        ("yes", ["yes it is"], 0.0, 0.0),  # official: yes, no and noanswer are all or nothing
        ("no way", ["no"], 0.0, 0.0),
        ("Rome", ["Paris", "rome"], 1.0, 1.0),
        ("the", ["x"], 0.0, 0.0),
        ("", ["A"], 0.0, 0.0),  # a gold that normalizes to nothing
        ("the  the", ["The The"], 1.0, 0.0),
    ],
)
def test_scores_by_hand(answer: str, references: list[str], exact: float, overlap: float) -> None:
    assert exact_match(answer, references) == exact
    assert f1(answer, references) == pytest.approx(overlap)


def test_an_episode_in_the_papers_style() -> None:
    env = make()
    question, info = env.reset(options={"task_id": COMPARISON})
    assert [message["role"] for message in info["messages"]] == ["system", "user"]
    assert info["messages"][1]["content"] == question and info["tools"] == [SEARCH.to_openai()]
    assert "up to 4 times" in info["messages"][0]["content"] and "5 turns" in info["messages"][0]["content"]
    task = find_source(MultihopQAOptions()).task(COMPARISON).question
    observation, reward, terminated, _, info = env.step(f"<think>two</think>\n{searches(*task.plan[0])}")
    assert observation.count("<tool_response>") == 2 and observation.endswith("4 of 5 turns left.")
    assert (reward, terminated, info["valid"], info["progress"]) == (0.0, False, True, True)
    assert info["query"] == " ; ".join(task.plan[0])
    assert (info["metrics"]["searches"], info["metrics"]["support_found"]) == (2.0, 1.0)
    again, *_, info = env.step(searches(task.plan[0][0]))
    assert again.count("(shown before)") == 3 and info["progress"] is False and info["valid"]
    assert info["metrics"]["repeated_searches"] == 1.0
    observation, reward, terminated, truncated, info = env.step(f"<answer> the {task.answers[0]}. </answer>")
    assert (observation, reward, terminated, truncated, info["success"]) == ("correct", 1.0, True, False, True)
    assert info["references"] == list(task.answers) and info["progress"] is True


@pytest.mark.parametrize(
    ("response", "told"),
    [
        ('<tool_call>{"name": "search", "arguments": {"q": "x"}}</tool_call>', "do not fit its schema"),
        (searches("x") + "<answer>y</answer>", "tool calls and an answer in one turn"),
    ],
)
def test_what_is_wrong_is_told(response: str, told: str) -> None:
    env = make()
    env.reset(options={"task_id": CHAIN})
    observation, reward, terminated, truncated, info = env.step(response)
    assert told in observation and "4 of 5 turns left" in observation
    assert (reward, terminated, truncated, info["valid"], info["progress"]) == (0.0, False, False, False, None)
    assert info["metrics"]["invalid_actions"] == 1.0
    assert told in env.render_window("q", (), observation)
    compact = make(questions="small", prompt="compact")
    compact.reset(options={"task_id": "test/000/00"})
    observation, _, terminated, *_ = compact.step(response)
    assert "invalid" in observation and told not in observation and not terminated


def test_states_of_two_worlds_with_the_same_question_differ() -> None:
    anchors = set()
    for task in ("train/000/01", "train/008/02"):  # "benora founder born ?", with two founders
        env = make(questions="small", prompt="compact")
        env.reset(options={"task_id": task})
        anchors.add(env.step(searches("benora founder"))[4]["anchor"])
        assert env.state.task.question.question == "benora founder born ?"
    assert len(anchors) == 2


def test_half_right_answers_earn_f1_where_it_is_asked_for() -> None:
    env = make(reward="f1")
    env.reset(options={"task_id": CHAIN})
    answer = env.state.task.question.answers[0]
    _, reward, *_, info = env.step(f"<answer>{answer} perhaps</answer>")
    assert 0.0 < reward == info["metrics"]["f1"] < 1.0 and not info["success"] and info["metrics"]["em"] == 0.0


def test_a_prompt_of_one_step_holds_everything_found() -> None:
    env = make()
    question, _ = env.reset(options={"task_id": CHAIN})
    first, second = find_source(MultihopQAOptions()).task(CHAIN).question.plan[:2]
    env.step(searches(*first))
    observation, *_ = env.step(searches(*second))
    prompt = env.render_window(question, (), observation)
    assert all(f"- {query}" in prompt for query in (*first, *second)) and prompt.count(question) == 1
    store = env.state.task.store
    assert len(env.state.seen) >= 4 and all(store.get(name).text in prompt for name in env.state.seen)
    assert '"name": "search"' in prompt and prompt.endswith("3 of 5 turns left.")
    compact = make(prompt="compact", questions="small")
    question, _ = compact.reset(options={"task_id": "test/000/00"})
    compact.step(searches("teacher"))
    assert compact.render_window(question, (), "").startswith(f"{question} ")


def test_long_passages_are_cut_and_results_bounded(tmp_path: Path) -> None:
    record = {"question": "q?", "answer": "x", "passages": [{"title": "T" * 400, "text": "word " * 5000}]}
    path = tmp_path / "q.jsonl"
    path.write_text(f"{json.dumps(record)}\n{json.dumps({**record, 'id': 'b'})}")
    env = make(questions=str(path), hits=20)
    env.reset(seed=0)
    observation, *_ = env.step(searches(*["word"] * 16))
    assert "[...]" in observation and len(observation) < 4 * 20 * 2000


def test_wrong_options_are_one_line() -> None:
    for options, message in (
        ({"questions": "smal"}, r"env\.questions=smal: no such file or folder; valid: generated, small"),
        ({"questions": "small", "passages": "x"}, "'env.passages' has no effect without env.questions other than"),
    ):
        with pytest.raises(InputError, match=message) as error:
            make(**options).reset(seed=0)
        assert "\n" not in str(error.value)


def source_of(questions: str, test_questions: str = "", passages: str = "") -> Source:
    return find_source(MultihopQAOptions(questions=questions, test_questions=test_questions, passages=passages))


SHARED = SHARED_DATA / "qa"
HOTPOT = {
    "_id": "h1", "question": "Which river flows through the birthplace of Ada?", "answer": "Oder", "type": "bridge",
    "level": "hard", "supporting_facts": [["Ada", 0], ["Kelm", 1]],
    "context": [["Ada", ["Ada was born in Kelm.", " She was a potter."]],
                ["Kelm", ["Kelm is old.", " The Oder flows there."]]],
}  # fmt: skip
FLAT = {
    **{key: HOTPOT[key] for key in ("question", "answer", "type")}, "id": "h2",
    "supporting_facts": {"title": ["Ada"], "sent_id": [0]},
    "context": {"title": ["Ada", "Bo"], "sentences": [["Ada was born in Kelm.", " She was a potter."], ["Bo."]]},
}  # fmt: skip
MUSIQUE = {
    "id": "m1", "question": "Who founded the town of Ada's birth?", "answer": "Cy", "answer_aliases": ["Cyrus", "Cy"],
    "answerable": True,
    "paragraphs": [{"idx": 0, "title": "Kelm", "paragraph_text": "Cy founded Kelm.", "is_supporting": True},
                   {"idx": 1, "title": "Kelm", "paragraph_text": "Kelm has a mill.", "is_supporting": False}],
}  # fmt: skip
PLAIN = {"Question": "Q?", "golden_answers": ["A", " ", "B"], "passages": [{"id": "p", "text": "t"}],
         "supporting": ["p"]}  # fmt: skip


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
    with pytest.raises(InputError, match=r"have no passages; set env\.passages"):
        source_of(str(questions))
    corpus = written(tmp_path / "c.jsonl", {"id": "1", "contents": '"Who"\nBo did it.'}, {"text": "Nobody."})
    env = make(questions=str(questions), passages=str(corpus))
    _, info = env.reset(options={"task_id": "1"})
    assert "support_found" not in info["metrics"]
    observation, *_, info = env.step(searches("who did it"))
    assert "[1] Who\nBo did it." in observation and info["progress"] is None
    assert env.step("<answer>Bo</answer>")[1] == 1.0
    options = {"questions": str(questions), "test_questions": str(questions), "passages": str(corpus)}
    assert play("1", **options)[1]["success"] and not play("2", **options)[1]["success"]
    questions = written(tmp_path / "q.json", HOTPOT, {**HOTPOT, "_id": "h2"})
    corpus = written(tmp_path / "ada.jsonl", {"id": "1", "title": "Ada", "text": "Ada was born in Kelm."})
    env = make(questions=str(questions), test_questions=str(questions), passages=str(corpus))
    _, info = env.reset(options={"task_id": "h1"})
    assert env.state.task.question.supporting == () and "support_found" not in info["metrics"]


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ({"question": "q"}, "line 2: no 'answer' in the question; it has: question"),
        ({"question": " ", "answer": "a"}, "line 2: 'question' is .*, not a text"),
        ({"question": "q", "answer": []}, "line 2: answer has no text; 1 of 2 questions cannot be used"),
        ({"question": "q", "answer": True}, "line 2: answer is bool"),
        ({**HOTPOT, "context": [["Ada"]]}, r"line 2: context is not a list of \[title, \[sentences\]\]"),
        ({**HOTPOT, "supporting_facts": [3]}, "line 2: supporting_facts is not a list of"),
        ({**MUSIQUE, "paragraphs": [{"title": "x"}]}, "line 2: no 'paragraph_text'; it has: title"),
    ],
)
def test_bad_questions_are_one_line_each(tmp_path: Path, record: Any, message: str) -> None:
    path = written(tmp_path / "q.jsonl", HOTPOT, record)
    with pytest.raises(InputError, match=message) as error:
        source_of(str(path))
    assert "\n" not in str(error.value) and str(path) in str(error.value)


def test_passages_with_ids_of_each_question_are_refused(tmp_path: Path) -> None:
    rows = [{"question": f"Q{text}?", "answer": text, "passages": [{"id": "0", "text": text}]} for text in "aab"]
    assert len(source_of(str(written(tmp_path / "same.jsonl", *rows[:2]))).task("1").store) == 1
    with pytest.raises(InputError, match=r"q\.jsonl: two different passages have the id '0'; leave the ids out"):
        source_of(str(written(tmp_path / "q.jsonl", *rows)))


def test_few_bad_questions_are_named_and_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good = [{**HOTPOT, "_id": f"q{number}"} for number in range(198)]
    path = written(
        tmp_path / "q.jsonl", *good[:3], {**HOTPOT, "answer": ""}, *good[3:], {"question": "", "answer": "a"}
    )
    source = source_of(str(path))
    assert len(source.ids("train")) + len(source.ids("test")) == 198 and len(source.task("q0").store) == 2
    said = capsys.readouterr().err
    assert f"2 of 200 questions excluded: {path}, line 4: answer has no text; {path}, line 200: 'question'" in said
    with pytest.raises(InputError, match=r"line 4: answer has no text$"):
        find_source(MultihopQAOptions(questions=str(path), max_bad_share=0.0))
    with pytest.raises(InputError, match=r"line 4: .*; 2 of 200 questions cannot be used, more than env"):
        find_source(MultihopQAOptions(questions=str(path), max_bad_share=0.005))


@pytest.mark.skipif(not SHARED.is_dir(), reason="no shared data")
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
