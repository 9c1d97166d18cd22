"""``run.py pool``: reading and exports; every error is one line with exit code 2."""

import json

import pytest
from store.experience import dialogue

from rl_agents.cli import main
from rl_agents.data.trajectory import Trajectory
from rl_agents.store.export import plain
from rl_agents.store.records import BatchRow, Credit, Event, SessionStart, session_records
from rl_agents.store.trajectory_store import PoolWriter

NAMES = [f"i0{seed // 4}-g{seed // 4}-m{seed % 4}" for seed in range(8)]


@pytest.fixture
def run_folder(tmp_path):
    with PoolWriter(tmp_path / "pool.sqlite") as pool:
        for seed, name in enumerate(NAMES):
            episode = dialogue(seed)
            if seed == 5:
                episode.failed, episode.success, episode.end_cause = True, False, "env_error: \x1b[31mred"
            pool.add(*session_records(episode, name, iteration=seed // 4, env="guess"))
        pool.add(BatchRow(0, 0, 0, NAMES[0]), Credit(0, 0, NAMES[0], 1, 0.75, 0.5), Event("checkpoint", 1))
        pool.add(BatchRow(1, 0, 0, NAMES[4]), SessionStart("open", 0, 0, 1, "t"))
    return tmp_path


def call(capsys, folder, *argv: str) -> str:
    code = main(["pool", str(folder), *argv])
    said = capsys.readouterr()
    assert (code, said.err) == (0, "")
    return said.out


def test_an_open_session_is_not_passed_over_in_silence(run_folder, tmp_path, capsys):
    assert "1 still open" in call(capsys, run_folder, "list", "--task", "none")
    with PoolWriter(tmp_path / "ended.sqlite") as pool:
        pool.add(
            SessionStart(NAMES[0], 0, 0, 1, "t"), *session_records(dialogue(0), NAMES[0], iteration=0, env="guess")
        )
    assert call(capsys, tmp_path / "ended.sqlite", "list", "--task", "none") == "no session matches\n"


def test_list_is_a_table(run_folder, capsys):
    lines = call(capsys, run_folder, "list").splitlines()
    assert " ".join(lines[0].split()) == "session iter task group steps tokens return result ended by state"
    assert [line.split()[0] for line in lines[1:-1]] == NAMES
    assert lines[1].split() == [
        NAMES[0],
        *["1", "task-0", "0/0", "3", "60", "0.75", "solved", "terminated", "trained", "1"],
    ]
    assert "failed" in lines[6] and "\\x1b[31mred" in lines[6] and "\x1b" not in lines[6]
    assert lines[-1] == "8 of 8 sessions"


@pytest.mark.parametrize(
    ("filters", "found"),
    [
        ("--success", [0, 2, 4, 6]),
        ("--failed", [5]),
        ("--state leased", [4]),
        ("--state ready --iteration 1", [1, 2, 3]),
        ("--group 1 --limit 2", [6, 7]),
        ("--env guess --max-return 1 --kind episode --limit 0", list(range(8))),
    ],
)
def test_filters(run_folder, capsys, filters, found):
    rows = [json.loads(line) for line in call(capsys, run_folder, "list", "--json", *filters.split()).splitlines()]
    assert [row["session"] for row in rows] == [NAMES[seed] for seed in found]
    text = call(capsys, run_folder, "list", *filters.split())
    assert ("no session matches" in text) == (not found)


def test_show_reads_like_a_dialogue(run_folder, capsys):
    text = call(capsys, run_folder, "show", "i00-g0-m0")
    for words in (
        f"session {NAMES[0]} (episode), iteration 1, env guess, task task-0, group 0, member 0, seed 0",
        "return 0.75 in 3 steps, 60 tokens sampled; solved, ended by terminated; trained 1",
        "metrics: score=0.0",
        "--- step 2: reward 0.25, 44 + 20 tokens, version 1, invalid, mean logprob -0.105, "
        "advantage 0.750, value 0.500 (iteration 1)",
        "environment:\n    observation 1\nagent:\n    action 1\n",
    ):
        assert words in text
    assert "ids" not in text
    assert f"response ids: {dialogue(0).steps[2].response_ids}" in call(capsys, run_folder, "show", NAMES[0], "--ids")
    data = json.loads(call(capsys, run_folder, "show", NAMES[1], "--json"))
    assert data["steps"][2]["response_ids"] == dialogue(1).steps[2].response_ids
    assert "\x1b" not in call(capsys, run_folder, "show", NAMES[5])


def test_sessions_that_a_resumption_took_back(run_folder, capsys):
    with PoolWriter(run_folder / "pool.sqlite") as pool:
        pool.add(Event("resumed", 1))
    rows = [json.loads(line) for line in call(capsys, run_folder, "list", "--json").splitlines()]
    assert [row["session"] for row in rows] == NAMES[:4]
    assert call(capsys, run_folder, "list", "--lost").splitlines()[-1] == "4 of 4 sessions"
    assert NAMES[4] in call(capsys, run_folder, "show", NAMES[4])


def test_export_of_lines_is_what_was_recorded(run_folder, capsys, tmp_path):
    out = tmp_path / "out.jsonl"
    assert call(capsys, run_folder, "export", "--output", str(out), "--iteration", "1") == f"4 sessions: {out}\n"
    fields = set(dialogue(0).to_json())
    read = []
    for row in map(json.loads, out.read_text().splitlines()):
        read.append(Trajectory.from_json({key: value for key, value in row.items() if key in fields}))
    assert read == [dialogue(seed) for seed in range(4)]
    assert not [file for file in tmp_path.iterdir() if file.name.startswith(".")]
    assert plain({"scores": [1, float("nan")]}) == {"scores": [1, None]}, "every JSON reader accepts it"


BAD = """
POOL => an action is missing; valid: list, show, export
nowhere list => nowhere: no such pool
GARBAGE list => not a pool, or a damaged one
POOL list --succes => unknown flag '--succes': did you mean '--success'?
POOL show => the following arguments are required: SESSION
POOL show i00-g0-mm => unknown session 'i00-g0-mm': did you mean 'i00-g0-m
POOL show open => session 'open' is still open
POOL exclude => unknown action of pool 'exclude'
POOL export --output POOL/taken.jsonl => taken.jsonl: exists already
POOL export --output POOL/no/folder.jsonl => cannot be written: No such file or directory
"""


@pytest.mark.parametrize("line", BAD.strip().splitlines())
def test_bad_input_is_one_line(run_folder, tmp_path, capsys, line, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "garbage").write_bytes(b"x" * 5000)
    (tmp_path / "taken.jsonl").write_text("mine")
    before = sorted(tmp_path.iterdir())
    command, words = line.split(" => ")
    places = {"POOL": run_folder, "GARBAGE": tmp_path / "garbage"}
    for name, place in places.items():
        command = command.replace(name, str(place))
    assert main(["pool", *command.split()]) == 2
    said = capsys.readouterr()
    assert said.out == "" and said.err.startswith("error: ") and said.err.count("\n") == 1
    assert words in said.err
    assert [file for file in sorted(tmp_path.iterdir()) if file not in before and "pool.sqlite" not in file.name] == []
    assert (tmp_path / "taken.jsonl").read_text() == "mine"
