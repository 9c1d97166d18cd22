"""Replays of small real runs: bit-equal, also with streaming; a modified record is named."""

import json
import re
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rl_agents.algorithms import Settings
from rl_agents.cli import main
from rl_agents.errors import InputError
from rl_agents.reporting.manifest import write_manifest
from rl_agents.store.packing import as_ids, as_sequence, pack, unpack
from rl_agents.store.reader import PoolReader, Where
from rl_agents.store.token_scores import TOKENS_FILE, read_step
from rl_agents.trainer.replay import refuse_unrecorded
from rl_agents.viewer.answers import answer
from rl_agents.viewer.runs import find_runs

KEYS = ["eval_episodes=0", "tasks_per_iteration=4", "group_size=4", "checkpoint_interval=1", "keep_checkpoints=0"]
#: Settings that change an update apart from its rows, one run for each.
RUNS: dict[str, list[str]] = {
    "grpo, several optimizer steps": ["algo=grpo", "minibatches=3", "epochs=2", "old_logprobs=learner", "kl_coef=0.01"],
    "dapo": ["algo=dapo", "dynamic_sampling=true", "max_generation_batches=0", "tasks_per_iteration=2"],
    "gspo, window, two behind": ["algo=gspo", "context=window(1)", "async_level=2", "minibatches=2"],
    "3spo": ["algo=3spo", "search_steps=40", "branching=replay", "lr_decay=1"],
    "3spo, published, one behind": [
        "algo=3spo", "reading=published", "search_steps=40", "branching=replay", "async_level=1",
    ],
}  # fmt: skip


def train(model_dir: Path, output: Path, *keys: str, iterations: int = 3) -> Path:
    argv = ["--local", "--model", str(model_dir), "--env", "guess_numbers", "--output", str(output)]
    assert main([*argv, "--iterations", str(iterations), "--set", *KEYS, *keys]) == 0
    return output


@pytest.fixture(scope="module")
def finished(beginner_model_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train(beginner_model_dir, tmp_path_factory.mktemp("finished") / "run", "algo=grpo")


@pytest.fixture
def run(finished: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(finished, tmp_path / "run"))


@pytest.mark.parametrize("keys", RUNS.values(), ids=RUNS.keys())
def test_learning_again_gives_the_same_weights(beginner_model_dir, tmp_path, capsys, keys: list[str]) -> None:
    iterations = 3 if "async_level=2" in keys else 2
    folder = train(beginner_model_dir, tmp_path / "run", *keys, iterations=iterations)
    capsys.readouterr()
    assert main(["replay", str(folder)]) == 0
    out = capsys.readouterr().out
    assert out.splitlines()[-1] == f"replay of 0:{iterations}: equal bit for bit, advantages and weights"
    assert out.count("tensors equal bit for bit") == iterations
    assert "credit equal" in out


def test_a_stream_is_replayed_with_the_groups_that_it_took(ray_session, beginner_model_dir, tmp_path, capsys) -> None:
    """With dynamic sampling some groups are skipped; the pool has the learner's batches in their order.

    The engine is in the env runner's process, which a replay does not have.
    """
    argv = ["--model", str(beginner_model_dir), "--env", "guess_numbers", "--output", str(tmp_path / "run")]
    stream = ["stream=true", "max_staleness=3", "num_env_runners=1", "engine=torch", "num_learners=0"]
    stream += ["placement=colocate"]
    assert main([*argv, "--iterations", "3", "--set", *KEYS, *RUNS["dapo"], *stream]) == 0
    capsys.readouterr()
    assert main(["replay", str(tmp_path / "run"), "--iterations", "1:3"]) == 0
    out = capsys.readouterr().out
    assert out.splitlines()[-1] == "replay of 1:3: equal bit for bit, advantages and weights"
    assert "credit equal" in out


def test_what_the_learner_made_of_every_token_is_written(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """After one optimizer step, tokens with a positive advantage are more likely, and engine and learner agree."""
    assert main(["replay", str(run), "--iterations", "1:2", "--tokens"]) == 0
    out = capsys.readouterr().out
    iteration, checkpoint, _, verdict = out.splitlines()
    assert iteration.startswith("iteration 2: 16 episodes") and checkpoint.startswith("checkpoint 2: 97 tensors equal")
    assert verdict == "replay of 1:2: equal bit for bit, advantages and weights"
    with PoolReader(run / "pool.sqlite") as reader:
        rows = [row for session in reader.sessions(Where(iteration=1)) for row in reader.credit(session.id)]
        credits = {(row.session, row.ordinal): row for row in rows}
        calls = {outcome.call: key for key in credits for outcome in reader.outcomes(key[0])[key[1] : key[1] + 1]}
        sizes = {calls[call.id]: len(call.response_ids) for call in reader.calls(list(calls))}
    found = {key: read_step(run / TOKENS_FILE, *key) for key in credits}
    assert f"tokens.sqlite: {sum(sizes.values())} tokens" in out
    pulled = 0.0
    for key, step in found.items():
        assert step is not None and (step.iteration, step.update) == (1, 0)
        advantage, ratio, gap, entropy, correction, mask = step.numbers
        assert len(mask) == sizes[key] and (mask == correction).all() and (mask == 1).all() and (entropy >= 0).all()
        assert advantage == pytest.approx(credits[key].advantage) and abs(gap).max() < 1e-4
        pulled += float((advantage * np.log(ratio)).sum())
    assert pulled > 0
    session, ordinal = max(found)
    asked = {"run": "run", "session": session, "ordinal": str(ordinal)}
    scores = json.loads(answer(find_runs([str(run)]), "tokens", asked))["scores"]
    assert scores["layers"]["ratio"] == pytest.approx(found[session, ordinal].numbers[1].tolist(), rel=1e-3)
    (run / TOKENS_FILE).write_text("something else")
    assert main(["replay", str(run), "--tokens"]) == 2 and "tokens.sqlite: " in capsys.readouterr().err


def test_a_resumed_run_is_replayed_as_it_went_on(beginner_model_dir, tmp_path, capsys) -> None:
    keys = ["algo=ppo", "critic_warmup=1", "kl_in_reward_coef=0.1"]
    folder = train(beginner_model_dir, tmp_path / "run", *keys, iterations=2)
    assert main(["--resume", str(folder / "checkpoints" / "000002"), "--iterations", "3", "--set", "lr=1e-3"]) == 0
    capsys.readouterr()
    for range_ in ("0:2", "2:3"):  # each with the learning rate of its time
        assert main(["replay", str(folder), "--iterations", range_]) == 0
        assert f"replay of {range_}: equal bit for bit" in capsys.readouterr().out
    for pruned in ("000001", "000002"):  # as by default, where the last ones alone are kept
        shutil.rmtree(folder / "checkpoints" / pruned)
    assert main(["replay", str(folder)]) == 2
    error = capsys.readouterr().err
    assert " to 0.001 when the run was resumed" in error and "; replay 0:2 and 2:3" in error


def test_what_credit_remembers_comes_from_the_checkpoint_and_is_compared(beginner_model_dir, tmp_path, capsys) -> None:
    """Solved episodes are trained on again, and every update is one behind."""
    keys = ["success_replay=2", "async_level=1", "success_replay_weight=1.0", "state_scope=task"]
    keys += ["algo=chain-gae", "bootstrap_on_truncation=true", "kl_coef=0.01", "minibatches=2"]
    folder = train(beginner_model_dir, tmp_path / "run", *keys)
    capsys.readouterr()
    assert main(["replay", str(folder)]) == 0
    out = capsys.readouterr().out
    assert "replay of 0:3: equal bit for bit" in out and " replayed episodes" in out
    assert main(["replay", str(folder), "--iterations", "1:3"]) == 0
    assert "replay of 1:3: equal bit for bit" in capsys.readouterr().out
    for iteration, first in ((2, "checkpoint 2: memory.json: "), (1, "i1.g")):  # of an episode that is trained on again
        memory = folder / "checkpoints" / f"00000{iteration}" / "memory.json"
        data = json.loads(memory.read_text(encoding="utf-8"))
        next(iter(data["states"].values()))[1] += 3.0  # rewards that were not recorded
        memory.write_text(json.dumps(data), encoding="utf-8")
        write_manifest(memory.parent)
        assert main(["replay", str(folder), "--iterations", "1:3"]) == 1
        assert f"first: {first}" in capsys.readouterr().out


def edit(folder: Path, *statement: Any) -> int:
    """Change the pool's database directly; return the number of rows."""
    with sqlite3.connect(folder / "pool.sqlite") as connection:
        return connection.execute(*statement).rowcount


def learned_from(folder: Path, iteration: int) -> tuple[str, int]:
    """Return a session of an update whose credit is not 0, and the call of its first step."""
    with sqlite3.connect(folder / "pool.sqlite") as connection:
        return connection.execute(
            "SELECT c.session, o.call FROM credit c JOIN outcomes o ON o.session = c.session AND o.ordinal = 0 "
            "WHERE c.iteration = ? AND c.ordinal = 0 AND c.advantage != 0 ORDER BY c.number LIMIT 1",
            (iteration,),
        ).fetchone()


def test_another_reward_is_noticed_and_named(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    session, _ = learned_from(run, 1)
    change = "UPDATE outcomes SET reward = reward + 3 WHERE session = ? AND ordinal = 0"
    assert edit(run, change, (session,)) == 1
    assert main(["replay", str(run)]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("iteration 1: 16 episodes") and "credit equal" in lines[0]
    assert lines[1] == "checkpoint 1: 97 tensors equal bit for bit"
    assert re.match(rf"  {session} step 1: advantage \S+ recorded, advantage \S+ again", lines[2])
    assert "first: " + session in lines[-1]
    assert any(line.startswith("checkpoint 2: ") and "differ" in line for line in lines)


def test_another_token_is_noticed_and_named(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, call = learned_from(run, 1)
    with sqlite3.connect(run / "pool.sqlite") as connection:
        (blob,) = connection.execute("SELECT response FROM calls WHERE id = ?", (call,)).fetchone()
    ids = as_ids(unpack(blob))
    ids[2] = ids[2] - 1
    assert edit(run, "UPDATE calls SET response = ? WHERE id = ?", (pack(as_sequence(ids)), call)) == 1
    assert main(["replay", str(run), "--iterations", "1:3"]) == 1
    out = capsys.readouterr().out
    assert re.search(r"checkpoint 2: \d+ of \d+ parts of the learner's state differ", out)


def test_tampering_after_the_range_does_not_matter(run: Path) -> None:
    session, _ = learned_from(run, 2)
    edit(run, "UPDATE outcomes SET reward = reward + 3 WHERE session = ?", (session,))
    assert main(["replay", str(run), "--iterations", "0:2"]) == 0


def test_weights_of_another_run_are_noticed(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copytree(run / "checkpoints" / "000001", run / "checkpoints" / "000002", dirs_exist_ok=True)
    assert main(["replay", str(run), "--iterations", "0:2"]) == 1
    out = capsys.readouterr().out
    assert re.search(r"checkpoint 2: \d+ of \d+ parts of the learner's state differ", out)
    assert re.search(r"checkpoint 2: \S+: largest difference \S+ of \S+", out)


def test_without_a_checkpoint_at_the_end_credit_is_all_that_is_compared(run: Path, capsys) -> None:
    shutil.rmtree(run / "checkpoints" / "000003")
    assert main(["replay", str(run), "--iterations", "0:3"]) == 0
    assert "equal in what is recorded: advantages; weights up to checkpoint 2" in capsys.readouterr().out
    shutil.rmtree(run / "checkpoints" / "000001")  # as by default, the last ones alone are kept
    assert main(["replay", str(run), "--iterations", "0:1"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == (
        "replay of 0:1: equal in what is recorded: advantages; no weights; to compare the weights of iteration 1, "
        "train with keep_checkpoints=0, or replay 0:2, which compares with checkpoints 2"
    )
    assert main(["replay", str(run)]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "replay of 0:2: equal bit for bit, advantages and weights"


def other_pool(run: Path) -> None:
    edit(run, "UPDATE events SET facts = replace(facts, '\"id\":\"', '\"id\":\"x') WHERE kind = 'run'")


REFUSED: dict[str, tuple[Callable[[Path], object], list[str], str]] = {
    "no range": (str, ["--iterations", "2"], "--iterations 2: write A:B, two numbers of completed iterations"),
    "too far": (str, ["--iterations", "0:9"], "--iterations 0:9: the run has completed 3 iterations"),
    "no checkpoint": (
        lambda run: shutil.rmtree(run / "checkpoints" / "000001"), ["--iterations", "1:3"],
        "--iterations 1:3: no checkpoint at iteration 1; available: 0 (the start), 2, 3",
    ),
    "no pool": (
        lambda run: (run / "pool.sqlite").unlink(), [], "no such pool; a run with save_pool=false cannot be replayed"
    ),
    "another run's pool": (other_pool, [], "the pool of another run: "),
    "a session is missing": (
        lambda run: edit(run, "DELETE FROM sessions WHERE id = 'i2.g0.m1'"), [],
        "session 'i2.g0.m1', which was trained on, is",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("spoil", "argv", "words"), REFUSED.values(), ids=REFUSED.keys())
def test_what_cannot_be_replayed_is_one_line(run, capsys, spoil, argv, words) -> None:
    spoil(run)
    assert main(["replay", str(run), *argv]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert words in line


def test_what_is_no_run_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["replay", str(tmp_path)]) == main(["replay", str(tmp_path / "none")]) == 2
    one, two = capsys.readouterr().err.splitlines()
    assert one.endswith("not the output folder of a run (no config.yaml)") and two.endswith("no such folder")


@pytest.mark.parametrize(
    ("keys", "words"),
    [({"algo": "sft"}, "sft trains on demonstrations, which no pool holds"), ({"pool": "p"}, "wrote none of its own")],
)
def test_runs_without_a_record_of_their_own_are_refused(keys: dict[str, str], words: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=words):
        refuse_unrecorded(Settings.from_dict(keys), tmp_path)
