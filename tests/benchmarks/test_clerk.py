"""The tool task: whoever looks up and adds is right, and nothing else earns a reward."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from benchmarks import clerk
from rl_agents.background import settled
from rl_agents.chat.template import ChatTemplate, load_tokenizer
from rl_agents.envs.base import make_env

TESTS = {row["id"]: row for row in clerk.questions("test")}


def look_up(row: dict[str, str]) -> str:
    return "".join(clerk.call("age_of", name=name) for name in row["id"].split("/"))


def add(row: dict[str, str]) -> str:
    a, b = (clerk.AGES[name] for name in row["id"].split("/"))
    return clerk.call("add", a=a, b=b)


def answered(text: str) -> Callable[[dict[str, str]], list[str]]:
    return lambda row: [text]


#: Players that never add two ages, by their turns on a question.
ADVERSARIES: dict[str, Callable[[dict[str, str]], list[str]]] = {
    "copies the question": lambda row: [f"<answer>{row['question']}</answer>"],
    "answers with an age": lambda row: [look_up(row), clerk.answer(clerk.AGES[row["id"].split("/")[0]])],
    "answers with both ages": lambda row: [
        look_up(row), "<answer>" + " and ".join(str(clerk.AGES[name]) for name in row["id"].split("/")) + "</answer>"
    ],
    "lists all sums": answered(f"<answer>{' '.join(map(str, range(40, 160)))}</answer>"),
    "never answers": lambda row: [look_up(row), add(row), add(row), add(row)],
    "answers twice": lambda row: [f"<answer>{row['answer']}</answer><answer>1</answer>"],
}  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path: Path = tmp_path_factory.mktemp("clerk")
    clerk.write(path)
    return path


@pytest.fixture(scope="module")
def play(folder: Path) -> Iterator[Callable[[str, list[str]], tuple[float, bool]]]:
    keys = {"servers": str(folder / "servers.json"), "tasks": str(folder / "train.jsonl")}
    env = make_env("mcp", {**keys, "test_tasks": str(folder / "test.jsonl")}, 4)

    def episode(task: str, actions: list[str]) -> tuple[float, bool]:
        settled(env.reset(options={"task_id": task}))
        earned, info = 0.0, {"success": False}
        for action in actions:
            _, reward, terminated, truncated, info = settled(env.step(action))
            earned += reward
            if terminated or truncated:
                break
        return earned, info["success"]

    yield episode
    env.close()


def test_two_look_ups_and_a_sum_solve_every_kind_of_question(play) -> None:
    for task, row in list(TESTS.items())[:20]:
        assert play(task, [look_up(row), add(row), clerk.answer(int(row["answer"]))]) == (1.0, True)


@pytest.mark.parametrize("name", ADVERSARIES)
def test_who_does_not_add_earns_nothing(play, name: str) -> None:
    assert not any(play(task, ADVERSARIES[name](row))[0] for task, row in list(TESTS.items())[:20])


def test_a_constant_answer_is_seldom_right() -> None:
    assert 0 < clerk.constant_share() <= clerk.MOST_CONSTANT


def test_no_person_of_the_test_questions_occurs_in_training() -> None:
    persons = [{name for row in clerk.questions(split) for name in row["id"].split("/")} for split in ("train", "test")]
    assert not persons[0] & persons[1] and len(persons[1]) == clerk.HELD_OUT


def test_demonstrations_have_the_form_and_many_are_wrong(folder: Path) -> None:
    chats = [json.loads(line) for line in (folder / "demonstrations.jsonl").read_text(encoding="utf-8").splitlines()]
    assert len(chats) == clerk.DEMONSTRATIONS
    right = 0
    for chat in chats:
        first, *_, last = [message["content"] for message in chat["messages"] if message["role"] == "assistant"]
        assert first.count("<tool_call>") == 2 and last.startswith("<answer>")
        names = chat["messages"][1]["content"].removeprefix("How old are ").removesuffix(" together?").split(" and ")
        right += last == clerk.answer(sum(clerk.AGES[name] for name in names))
    assert 0.25 < right / len(chats) < 0.5


def test_the_template_with_tools_writes_the_same_ids_where_there_are_none(smollm2_dir: Path, tmp_path: Path) -> None:
    for file in smollm2_dir.glob("*.json"):
        (tmp_path / file.name).symlink_to(file)
    (tmp_path / "chat_template.jinja").write_text(clerk.TEMPLATE, encoding="utf-8")
    own, with_tools = (ChatTemplate(load_tokenizer(path)) for path in (smollm2_dir, tmp_path))
    said = ["Hi", "Hello.", "And now?"]
    chat = [{"role": role, "content": text} for role, text in zip(("user", "assistant", "user"), said, strict=True)]
    for messages in (chat[:1], chat, [{"role": "system", "content": "You are a clerk."}, *chat]):
        assert with_tools.chat_ids(messages) == own.chat_ids(messages)
