"""What reads tables: questions, tasks, traces and dialogues from Parquet and CSV with a column map, and real sets."""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from chat_tokenizers import qwen
from data.made_tables import HOTPOT, TOOL, dialogue, written

from rl_agents.algorithms import Settings
from rl_agents.chat.template import load_tokenizer, make_context
from rl_agents.cli import main
from rl_agents.data.tables import Row, open_table
from rl_agents.envs.base import env_spec as spec
from rl_agents.envs.base import make_env, read_env_options, task_ids
from rl_agents.envs.long_form_qa.tasks import read_question
from rl_agents.envs.questions import read_questions
from rl_agents.errors import InputError
from rl_agents.rollout.demonstrations import demonstrated_trajectories
from rl_agents.traces.files import read_traces
from rl_agents.traces.store import read_turns

SHARED = Path(os.environ.get("RL_AGENTS_SHARED_DATA") or Path(__file__).parents[3] / "shared" / "data")


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RL_AGENTS_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


def test_multihop_qa_plays_a_parquet_file_with_nested_columns(tmp_path: Path) -> None:
    path = written(tmp_path / "train.parquet", [{**HOTPOT, "key": f"q{n}"} for n in range(20)])
    columns = "id:key,answer:reward_model.ground_truth"
    options = {"questions": str(path), "columns": columns}
    tests = task_ids("multihop_qa", "test", options)
    assert len(tests) == 2 and len(task_ids("multihop_qa", "train", options)) == 18
    env = make_env("multihop_qa", options)
    observation, info = env.reset(options={"task_id": tests[0]})
    assert HOTPOT["question"] in str(observation) + str(info)
    assert env.step("<answer>Oder</answer>")[1] == 1.0
    as_mapping = read_env_options(
        spec("multihop_qa"), {"columns": {"id": "key", "answer": "reward_model.ground_truth"}}
    )
    assert as_mapping == read_env_options(spec("multihop_qa"), {"columns": columns}), "as YAML writes it"
    with pytest.raises(InputError, match=r"no column 'reward_model.truth' for 'answer'.*reward_model.ground_truth"):
        task_ids("multihop_qa", "train", {**options, "columns": "answer:reward_model.truth"})
    with pytest.raises(InputError, match="must be NAME:COLUMN pairs"):
        task_ids("multihop_qa", "train", {**options, "columns": "answer"})


def test_lines_that_are_no_json_count_as_bad_questions(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = [json.dumps({"id": f"q{n}", "question": "Q?", "answer": "A"}) for n in range(199)]
    path = tmp_path / "q.jsonl"
    path.write_text("\n".join([*lines[:2], '{"question": ', *lines[2:]]))
    options = {"tasks": str(path), "test_tasks": ""}
    assert len(task_ids("mcp", "train", options)) == 179
    assert f"1 of 200 questions excluded: {path}, line 3: not JSON" in capsys.readouterr().err
    with pytest.raises(InputError, match="line 3: not JSON"):
        task_ids("mcp", "train", {**options, "max_bad_share": 0.0})


def test_rows_without_ids_have_different_ones_in_different_files(tmp_path: Path) -> None:
    for name in ("train", "test", "sh/train-00000-of-00002", "sh/train-00001-of-00002"):
        (tmp_path / "sh").mkdir(exist_ok=True)
        (tmp_path / f"{name}.jsonl").write_text('{"question": "Who?", "answer": "Bo", "id": null, "split": null}\n' * 2)
    questions = {"tasks": f"{tmp_path}/train.jsonl", "test_tasks": f"{tmp_path}/test.jsonl"}
    assert task_ids("mcp", "train", questions) == ["1", "2"] and task_ids("mcp", "test", questions) != ["1", "2"]
    shards = {"tasks": f"{tmp_path}/sh/train", "agent_command": "true"}
    assert len({name for split in ("train", "test") for name in task_ids("blackbox", split, shards)}) == 4


@pytest.mark.parametrize("end", ["jsonl", "json", "parquet"])
def test_numeric_answers_are_texts_as_they_are_written(tmp_path: Path, end: str) -> None:
    rows = [(f'"n{i}"', answer) for i, answer in enumerate(("7", "1.50", "[3, 2e3]", "-0.0", "true"))]
    text = [f'{{"id": {name}, "question": "How many?", "answer": {answer}}}' for name, answer in rows]
    expected: list[tuple[str, ...]] = [("7",), ("1.50",), ("3", "2e3"), ("-0.0",)]
    path = tmp_path / f"q.{end}"
    if end == "parquet":
        written(path, [{"id": f"n{i}", "question": "How many?", "answer": number} for i, number in enumerate((42, 7))])
        expected = [("42",), ("7",)]
    else:
        path.write_text("[" + ",".join(text) + "]" if end == "json" else "\n".join(text))
    reports: list[str] = []
    assert [entry.question.answers for entry, _ in read_questions(path, 0.2, reports.append)] == expected
    assert end == "parquet" or "answer is bool, not a text" in reports[0]
    row = Row(Path("q"), "line", 1, 1, {"points": [2.5], "question": 7}, 1.0)
    assert read_question(row, 1)[2] == ["7", ("2.5",), ("2.5",)]


def test_blackbox_and_mcp_take_tables(tmp_path: Path) -> None:
    path = tmp_path / "tasks.csv"
    path.write_text("nr,prompt,gold,split\n1,Who?,Bo,train\n2,What?,7,test\n")
    options = {"tasks": str(path), "columns": "id:nr,question:prompt", "agent_command": "true"}
    assert (task_ids("blackbox", "train", options), task_ids("blackbox", "test", options)) == (["1"], ["2"])
    from rl_agents.envs.blackbox.tasks import task_payload

    payload = task_payload("2", read_env_options(spec("blackbox"), options), 5)
    assert payload == {"id": "2", "question": "What?", "gold": "7", "split": "test"}
    assert task_ids("mcp", "test", {"tasks": str(path), "columns": "question:prompt,answer:gold,id:nr"}) in (
        ["1"],
        ["2"],
    )
    rows = [
        {"q": "Who?", "rubric": {"items": ["Bo did."]}, "level": 3},
        {"q": "What?", "rubric": {"items": ["It."]}, "level": 1},
    ]
    documents = tmp_path / "documents.jsonl"
    documents.write_text('{"text": "Bo did."}\n')
    long_form = {"questions": str(written(tmp_path / "l.parquet", rows)), "documents": str(documents)}
    long_form["columns"] = "question:q,points:rubric.items"
    assert [task_ids("long_form_qa", split, long_form) for split in ("train", "test")] == [["2"], ["1"]]


def test_pivot_extracts_traces_from_parquet(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [{"chat": {"turns": dialogue(n)}, "tools_json": json.dumps([TOOL]), "score": 1.0} for n in range(3)]
    path = written(tmp_path / "t.parquet", rows)
    columns = ["--columns", "messages:chat.turns,tools:tools_json,reward:score"]
    argv = ["pivot", "extract", "--traces", str(path), "--output"]
    assert main([*argv, str(tmp_path / "out"), *columns]) == 0
    turns = read_turns(tmp_path / "out" / "turns.parquet")
    assert [turn.kind for turn in turns] == ["call", "message"] * 3 and turns[0].tools[0].name == "look"
    assert turns[2].source == f"{path}:2" and turns[2].calls[0].arguments == {"at": "t1"}
    assert main([*argv, str(tmp_path / "no"), "--columns", "messages:chat.turn"]) == 2
    assert "no column 'chat.turn' for 'messages': did you mean 'chat.turns'?" in capsys.readouterr().err


def test_sharegpt_conversations_and_pairs(tmp_path: Path) -> None:
    said = [("human", "Weather?"), ("gpt", '[get(city="Rome")]'), ("tool", "dry"), ("gpt", "Dry.")]
    record = {"system": "You call.", "conversations": [{"from": who, "value": text} for who, text in said]}
    pair = {"prompt": [{"role": "user", "content": "2+2"}], "response": "4", "id": 7}
    path = tmp_path / "t.json"
    path.write_text(json.dumps([record, pair, {"prompt": "x"}, {"conversations": [{"from": "moon", "value": "x"}]}]))
    found = read_traces(path)
    assert [m["role"] for m in found.traces[0].messages] == ["system", "user", "assistant", "user", "assistant"]
    assert found.traces[1].single and found.traces[1].trace_id == "7" and found.traces[1].messages[-1]["content"] == "4"
    assert "whose response is NoneType" in str(found.defects[0]) and "turn 1 is from 'moon'" in str(found.defects[1])


def test_sft_learns_from_dialogues_in_parquet(tmp_path: Path) -> None:
    """Every assistant turn is a step whose prompt is what was said before, the results of tools included."""
    path = written(tmp_path / "d.parquet", [{"chat": dialogue(n), "score": float(n != 1)} for n in range(4)])
    model = str(tmp_path / "model")
    qwen().save_pretrained(model)
    keys = {"algo": "sft", "model": model, "demonstration_data": str(path), "max_model_len": 512}
    keys["demonstration_columns"] = "messages:chat,reward:score"
    found = demonstrated_trajectories(Settings.from_dict(keys), model, 0)
    assert len(found) == 3, "one earned nothing"
    assert [trajectory.task_id for trajectory in found] == list(found.sources()), "an iteration ends"
    first, second = found[1].steps
    template = make_context("append", load_tokenizer(model)).template
    assert '"name": "look"' in template.decode(first.response_ids).replace('":"', '": "')
    assert template.decode(second.response_ids) == "w6" and second.response_ids[-1] == template.end_of_turn
    assert first.prompt_ids == list(template.opening("w2 w2")) and found[1].task_id == f"{path}:3"
    said = [*first.prompt_ids, *first.response_ids]
    assert second.prompt_ids[: len(said)] == said and "w4 w5" in template.decode(second.prompt_ids[len(said) :])
    with pytest.raises(InputError, match="does not fit max_model_len=2"):
        demonstrated_trajectories(Settings.from_dict({**keys, "max_model_len": 2}), model, 0)[0]
    with pytest.raises(InputError, match="imitated with context=append"):
        demonstrated_trajectories(Settings.from_dict({**keys, "context": "window(2)"}), model, 0)


@pytest.mark.parametrize(
    ("file", "rows", "columns"),
    [
        ("qa/sds_2wiki.json", 500, {"question": "Question"}),
        ("qa/hotpot_dev_v1_simplified.json", 7405, {}),
        ("ar_bench/data/sp/test.json", 100, {}),
        ("tau_bench/few_shot_data/MockAirlineDomainEnv-few_shot.jsonl", None, {}),
        ("nemo_gym/workplace_csv/emails.csv", None, {"question": "subject"}),
    ],
)
def test_real_sets_come_through_the_reader(file: str, rows: int | None, columns: dict[str, str], tmp_path) -> None:
    path = SHARED / file
    if not path.is_file():
        pytest.skip(f"no {path} (set RL_AGENTS_SHARED_DATA)")
    found = [row.record() for row in open_table(path, columns)]
    assert len(found) == rows or (rows is None and len(found) > 3)
    assert all(isinstance(record, dict) and columns.keys() <= record.keys() for record in found)
    if file == "qa/sds_2wiki.json":  # the same questions in Parquet are the same questions
        again = written(tmp_path / "q.parquet", found)
        assert [row.record() for row in open_table(again)] == found
