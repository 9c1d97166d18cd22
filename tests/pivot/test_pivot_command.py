"""From traces to training steps on the command line: the help desk, and real traces. Takes half a minute."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from pivot.expert_traces import write_untrained

from rl_agents.cli import main
from rl_agents.traces.store import read_table, read_turns, write_turns

pytestmark = pytest.mark.rllib

SMALL = ["tasks_per_iteration=4", "group_size=4", "eval_episodes=8", "eval_interval=0", "checkpoint_interval=0"]


@pytest.fixture(scope="module")
def beginner(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A help desk starter that was taught for a few seconds."""
    from rl_agents.trainer.algorithm import AgentAlgorithm
    from rl_agents.trainer.warm_start import build_starter

    short = {"iterations": 10, "tasks_per_iteration": 320, "demonstrations": 3200}
    return build_starter(AgentAlgorithm.from_settings, "pivot", tmp_path_factory.mktemp("models") / "desk", set=short)


@pytest.fixture(scope="module")
def profiled(beginner: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Turns of 60 traces with their profile."""
    folder = tmp_path_factory.mktemp("desk")
    traces = folder / "traces.jsonl"
    assert main(["pivot", "demo-traces", "--output", str(traces), "--traces", "60"]) == 0
    assert main(["pivot", "extract", "--traces", str(traces), "--output", str(folder)]) == 0
    argv = ["pivot", "profile", "--traces", str(folder), "--model", str(beginner), "--local"]
    assert main([*argv, "--limit", "60", "--rollouts", "6"]) == 0
    return folder


def test_profiling_again_plays_nothing_and_says_the_same(profiled: Path, beginner: Path, capsys) -> None:
    before = (profiled / "profile.parquet").read_bytes()
    argv = ["pivot", "profile", "--traces", str(profiled), "--model", str(beginner), "--local", "--limit", "60"]
    (profiled / "profile_parts" / "000000.json").touch()
    assert main([*argv, "--rollouts", "6"]) == 0
    assert (profiled / "profile.parquet").read_bytes() == before
    assert read_table(profiled / "profile.parquet").num_rows == 60
    assert json.loads((profiled / "profile.json").read_text())["rollout_turns"] == 360
    assert main([*argv, "--rollouts", "8"]) == 2
    assert "holds a profile with rollouts=6, not 8" in capsys.readouterr().err


def test_filter_random_and_training(profiled: Path, beginner: Path, tmp_path: Path, capsys) -> None:
    assert main(["pivot", "filter", "--traces", str(profiled), "--max-mean", "0.9"]) == 0
    kept = read_turns(profiled / "pivots.parquet")
    said = capsys.readouterr().out
    assert f"{len(kept)} are kept" in said and (profiled / "pivots.png").stat().st_size > 10_000
    assert main(["pivot", "filter", "--traces", str(profiled), "--max-mean", "0.9", "--random"]) == 0
    assert len(read_turns(profiled / "random_pivots.parquet")) == len(kept)
    run = tmp_path / "run"
    keys = [f"env.pivots={profiled / 'pivots.parquet'}", f"model={beginner}", "kl_coef=0.01", "leave_one_out=true"]
    argv = ["--algo", "pivotrl", "--env", "pivot", "--local", "--iterations", "3", "--output", str(run)]
    assert main([*argv, "--set", *keys, *SMALL]) == 0
    records = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    trained = [record for record in records if record["iteration"] > 0]
    assert [record["rollout/turns"] for record in trained] == [16, 16, 16]
    assert all(0 <= record["select/uniform_share"] <= 1 for record in trained)
    assert all(record["rollout/turns_mean"] == 1 and record["actor/kl_reference"] >= 0 for record in trained)
    assert any(record["actor/grad_norm"] > 0 for record in trained)
    assert json.loads((run / "summary.json").read_text())["rollout_turns"] == 48
    assert main(["eval", "--checkpoint", str(run), "--episodes", "8", "--seeds", "1", "--local", "--json"]) == 0
    argv = ["pivot", "extract", "--traces", str(run), "--min-reward", "0", "--output", str(tmp_path / "played")]
    assert main(argv) == 0
    played = read_turns(tmp_path / "played" / "turns.parquet")
    assert played and all(turn.tools == kept[0].tools for turn in played)
    assert any(turn.messages == pivot.messages for turn in played for pivot in kept)


@pytest.mark.ray
def test_profiling_with_actors(ray_session: None, tmp_path: Path) -> None:
    traces, folder = (str(tmp_path / name) for name in ("desk.jsonl", "profile"))
    assert main(["pivot", "demo-traces", "--output", traces, "--traces", "6"]) == 0
    model = write_untrained(tmp_path / "desk.jsonl", tmp_path / "model")
    argv = ["pivot", "profile", "--traces", traces, "--model", model, "--output", folder, "--limit", "8"]
    keys = ["engine=torch", "max_response_tokens=8"]
    assert main([*argv, "--rollouts", "2", "--set", *keys]) == 0
    rows = read_table(tmp_path / "profile" / "profile.parquet").to_pylist()
    # Eight tokens of an untrained model are a message, and no call, whatever is sampled and in whichever batch.
    assert {row["kind"] for row in rows} == {"message", "call"}
    assert [row["scores"] for row in rows] == [[float(row["kind"] == "message")] * 2 for row in rows]


def test_traces_of_an_environments_expert_and_of_its_mediocre_player(tmp_path: Path, capsys) -> None:
    for more, player, rewards in (([], "expert", {1.0}), (["--mediocre"], "demonstrator", {0.0, 1.0})):
        file = tmp_path / f"{player}.jsonl"
        argv = ["pivot", "demo-traces", "--env", "webshop", "--traces", "12", "--output", str(file), *more]
        assert main([*argv, "--set", "env.catalogue=small", "env.prompt=compact"]) == 0
        assert f"12 traces by the {player}" in capsys.readouterr().out
        assert {json.loads(line)["reward"] for line in file.read_text().splitlines()} == rewards


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["pivot", "profile", "--traces", "x", "--model", "y", "--rollouts", "1"], "--rollouts 1: must be at least 2"),
        (
            ["pivot", "profile", "--traces", "x", "--model", "y", "--set", "algo=grpo"],
            "--set algo=grpo: pivot profile sets it itself",
        ),
        (["pivot", "demo-traces", "--output", "x.jsonl", "--mediocre"], "environment pivot only has an expert"),
    ],
)
def test_bad_input_is_one_line(argv: list[str], message: str, tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(argv) == 2
    error = capsys.readouterr().err
    assert len(error.splitlines()) == 1 and message in error
    assert not list(tmp_path.iterdir())


def test_turns_that_the_verifier_refuses_or_that_are_too_long(profiled: Path, beginner: Path, tmp_path, capsys) -> None:
    good = read_turns(profiled / "turns.parquet")[:6]
    bad = replace(good[0], turn_id="ff", action={"role": "assistant", "content": "<think>endless"})
    long = replace(good[1], turn_id="fe", messages=({"role": "user", "content": "pending " * 300},))
    write_turns(tmp_path / "turns.parquet", [*good, bad, long])
    argv = ["pivot", "profile", "--traces", str(tmp_path), "--model", str(beginner), "--local", "--rollouts", "2"]
    assert main(argv) == 2
    assert "7 of 8 demonstrated actions score 1" in capsys.readouterr().err
    assert main([*argv, "--skip-bad"]) == 0
    said = capsys.readouterr().err
    assert "excluded turns: 1 rejected by their verifier" in said and "excluded turns: 1 too long" in said
    assert read_table(tmp_path / "profile.parquet").num_rows == 6
