"""``run.py rescore``: what another reward would change in the advantages of recorded groups."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from store.experience import dialogue

from rl_agents.cli import main
from rl_agents.rewards.base import reward
from rl_agents.store.records import session_records
from rl_agents.store.trajectory_store import PoolWriter

#: (iteration, group, recorded returns, returns with the other reward; None: no score)
GROUPS = [
    (0, 0, [1.0, 0.0], [0.0, 1.0]),  # both signs change
    (0, 1, [1.0, 0.0], [1.0, 1.0]),  # becomes equal
    (1, 0, [0.0, 0.0], [3.0, 1.0]),  # becomes unequal
    (1, 1, [1.0], [1.0]),  # alone
    (1, 2, [1.0, 0.0], [1.0, None]),  # alone without the one that has no score
]


@reward("rescored", "what a fact says")
def _from_facts(trajectory):
    return trajectory.facts["other"] + 0.0


@reward("rescored-raises", "always fails")
def _raises(trajectory):
    raise KeyError("no such fact")


@reward("rescored-return", "the return that the environment gave")
def _doubled(trajectory):
    return 2 * trajectory.episode_return


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    with PoolWriter(tmp_path / "pool.sqlite") as pool:
        seed = 0
        for iteration, group, before, after in GROUPS:
            for member, (old, new) in enumerate(zip(before, after, strict=True)):
                seed += 1
                played = replace(dialogue(seed), task_id=f"t{group}", group_id=group, member=member)
                played.steps = [replace(step, reward=0.0) for step in played.steps]
                played.steps[-1] = replace(played.steps[-1], reward=old)
                played.facts = {"environment_return": 1.0 - old, **({} if new is None else {"other": new})}
                pool.add(*session_records(played, f"s{seed}", iteration=iteration, env="guess"))
        broken = replace(dialogue(99), task_id="t0", group_id=0, member=2, failed=True, end_cause="env_error: x")
        pool.add(*session_records(broken, "broken", iteration=0, env="guess"))
    return tmp_path


def rescore(capsys, *argv: str) -> dict[str, dict[str, float]]:
    assert main(["rescore", *argv, "--json"]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    return json.loads(line)


def test_the_changes_by_hand(folder: Path, capsys) -> None:
    found = rescore(capsys, str(folder), "--set", "reward=rescored")
    assert list(found) == ["all", "1", "2"]
    # Advantages in units of 0.707: before + - + - 0 0, after - + 0 0 + -.
    assert found["all"] == {
        "reward": "rescored", "not_compared": 4, "episodes": 6, "groups": 3, "return_before": pytest.approx(2 / 6),
        "return_after": pytest.approx(7 / 6), "correlation": pytest.approx(-0.5), "signs_changed": 1.0,
        "groups_equal_before": 1, "groups_become_equal": 1, "groups_become_unequal": 1,
    }  # fmt: skip
    assert found["2"]["correlation"] is None and found["2"]["signs_changed"] is None
    one = rescore(capsys, str(folder / "pool.sqlite"), "--iteration", "2", "--set", "reward=rescored")
    assert one["all"]["episodes"] == 2 and one["2"] == found["2"]


@pytest.mark.parametrize(("name", "after", "signs"), [("environment", 5 / 8, 1.0), ("rescored-return", 10 / 8, 1.0)])
def test_rewards_read_the_environments_return_and_not_the_one_that_replaced_it(
    folder: Path, capsys, name: str, after: float, signs: float
) -> None:
    found = rescore(capsys, str(folder), "--set", f"reward={name}")["all"]
    assert (found["return_before"], found["signs_changed"]) == (3 / 8, signs)
    assert found["return_after"] == pytest.approx(after)


def test_the_table_and_nothing_is_written(folder: Path, capsys) -> None:
    before = (folder / "pool.sqlite").read_bytes()
    assert main(["rescore", str(folder), "--set", "reward=rescored"]) == 0
    head, rule, *rows = capsys.readouterr().out.splitlines()
    assert head.startswith("| iteration | episodes | groups | return before |") and head.count("|") == rule.count("|")
    assert rows[0].startswith("| all | 6 | 3 | 0.333 | 1.17 | -0.5 | 1 | 1 | 1 | 1 |") and "| - | - |" in rows[2]
    assert (folder / "pool.sqlite").read_bytes() == before


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["--set", "reward=rescore"], "unknown reward 'rescore': did you mean 'rescored'?"),
        (["--set", "lr=1"], "unknown key of rewards 'lr'"),
        (["--set", "reward=prs", "prs_form=general", "judge=openai"], "judge=openai needs judge_url"),
        (["--set", "reward=rescored-raises"], "reward=rescored-raises scored none of"),
        (["--set", "reward=rescored", "--iteration", "9"], "has 1 to 2"),
        ([], "rescore needs another reward or judge"),
        (["--set", "prs_form=short"], "key 'prs_form' has no effect without reward=prs"),
        (["--iteration", "0"], "--iteration 0: must be at least 1"),
    ],
)
def test_errors_are_one_line(folder: Path, capsys, argv: list[str], words: str) -> None:
    assert main(["rescore", str(folder), *argv]) == 2
    said = capsys.readouterr()
    assert words in said.err and said.err.count("\n") == 1 and not said.out
    if "raises" in words:
        assert Path(__file__).name in said.err, "the user's file"
    assert main(["rescore", str(folder / "no.sqlite")]) == 2
    assert "no such pool" in capsys.readouterr().err
