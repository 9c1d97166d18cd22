"""Seeded mutations of command lines, recipes and data files: always one line and exit code 2, never a traceback."""

import json
import random
from pathlib import Path

import pytest
import yaml

from rl_agents.algorithms import ALGORITHMS
from rl_agents.algorithms import KEYS as RUN_KEYS
from rl_agents.cli import main
from rl_agents.envs.questions import read_questions
from rl_agents.errors import InputError
from rl_agents.retrieval.passages import read_passages
from rl_agents.tools.mcp_servers import read_servers
from rl_agents.traces.files import read_traces

VALUES = [
    "", "0", "-1", "1", "1.5", "1e400", "nan", ".inf", "-.inf", "null", "true", "[]", "[1]", "[a, b]", "{}", "{a: 1}",
    "x", "'", "\"", "[", "&a", "*a", "!!int x", "2020-01-01", "1_000", "0x10", "1e3", "猫", "a: b", "%", "@", "\t", "~",
    "99999999999999999999", "-0.0", "window(2)", "append", "starter", ".", "/", "paper",
]  # fmt: skip
KEYS = [*RUN_KEYS, "env.prompt", "env.questions", "env.nope", "env.", "LR", "learning_rate", "", "a.b", "é"]


@pytest.fixture
def starts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """Replace training: collect the algorithms of accepted runs. The working folder is empty."""
    begun: list[str] = []
    monkeypatch.setattr("rl_agents.cli.train._train", lambda plan, _: bool(begun.append(plan.settings.algo)) or True)
    monkeypatch.chdir(tmp_path)
    return begun


def check(argv: list[str], capsys: pytest.CaptureFixture[str]) -> int:
    code = main(argv)
    said = capsys.readouterr()
    assert code in (0, 2), (argv, said.err)
    assert code == 0 or (said.err.startswith("error: ") and said.err.count("\n") == 1), (argv, said.err)
    return code


def test_keys_and_values_at_random(starts, capsys) -> None:
    rng = random.Random(1)
    refused = 0
    for _ in range(150):
        chosen = [f"{rng.choice(KEYS)}={rng.choice(VALUES)}" for _ in range(rng.randrange(1, 3))]
        algo = ["--algo", rng.choice([*ALGORITHMS, "x"])] if rng.random() < 0.5 else []
        env = ["--env", rng.choice(["guess_numbers", "circuit_decoding", "x"])] if rng.random() < 0.5 else []
        refused += check([*algo, *env, "--set", *chosen], capsys) == 2
    assert refused > 90, "most of it cannot work"


SCRAPS = [b"\x00", b"\xff", b"{", b"]", b":", b"\n", b"\t", b'"', b"- ", b"#", b"&a ", b"!!int "]


def mutated(rng: random.Random, text: bytes) -> bytes:
    data = bytearray(text)
    for _ in range(rng.randrange(1, 4)):
        place = rng.randrange(len(data) + 1)
        if rng.random() < 0.4:
            data[place : place + rng.randrange(6)] = b""
        elif rng.random() < 0.5:
            data[place:place] = rng.choice(SCRAPS)
        else:
            data = data[:place]
    return bytes(data)


def test_presets_at_random(starts, capsys, tmp_path) -> None:
    rng, path = random.Random(2), tmp_path / "p.yaml"
    good = yaml.safe_dump({"algo": "grpo", "lr": 0.1, "betas": [0.9, 0.95], "context": "append", "env.prompt": "paper"})
    for _ in range(100):
        path.write_bytes(mutated(rng, good.encode()))
        check(["--config", str(path)], capsys)


QUESTION = {"question": "q", "answer": ["a"], "context": [["t", ["s"]]], "supporting_facts": [["t", 0]]}
PASSAGE = {"id": "1", "title": "t", "text": "x"}
SERVER = {"mcpServers": {"a": {"command": "x", "args": ["y"], "env": {"A": "b"}}}}
CALL = {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
TRACE = {
    "messages": [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": "", "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "1", "content": "ok"},
    ],
    "tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}],
}


@pytest.mark.parametrize(
    ("name", "good", "read"),
    [
        ("q.jsonl", QUESTION, lambda path: list(read_questions(path))),
        ("q.json", [QUESTION, QUESTION], lambda path: list(read_questions(path))),
        ("p.jsonl", PASSAGE, lambda path: list(read_passages(path))),
        ("p.json", [PASSAGE], lambda path: list(read_passages(path))),
        ("s.json", SERVER, read_servers),
        ("t.jsonl", TRACE, read_traces),
    ],
    ids=["questions.jsonl", "questions.json", "passages.jsonl", "passages.json", "servers", "traces"],
)
def test_data_files_at_random(name, good, read, tmp_path) -> None:
    rng, path, bad = random.Random(3), tmp_path / name, 0
    values = [None, 3, [], {}, "", [[]], [None], {"a": 1}, True, "\ud800", "x"]
    for number in range(200):
        text = json.dumps(good).encode()
        if number % 2:
            path.write_bytes(mutated(rng, text))
        else:  # one value of it becomes another
            words = text.decode().split(":")
            place = rng.randrange(1, len(words))
            words[place] = (
                f" {json.dumps(rng.choice(values))}" + ("," if "," in words[place] else "") + words[place][-1:]
            )
            path.write_text(":".join(words))
        try:
            read(path)
        except InputError as error:
            bad += 1
            assert str(path) in str(error) and "\n" not in str(error)
    assert bad > 20 or name == "t.jsonl"
