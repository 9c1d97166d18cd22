"""How the page explains a method's treatment of an episode; numbers worked by hand."""

import json
from dataclasses import replace

import pytest
from viewer import made_run
from viewer.made_run import write_run

from rl_agents.store.records import BatchRow, Credit, Event, session_records
from rl_agents.store.trajectory_store import PoolWriter
from rl_agents.viewer.answers import answer
from rl_agents.viewer.runs import find_runs


def ask(folder, **values):
    return json.loads(answer(find_runs([str(folder)]), "episode", {"run": folder.name, **values}))


def test_vspo(tmp_path):
    """A task that was drawn twice: its advantages count 2 - 1/N times, with N = 2."""
    keys = {"algo": "vspo", "vspo_alpha": 2.0, "vspo_temperature": 0.5, "tasks_per_iteration": 2}
    folder = write_run(tmp_path / "run", iterations=1, factor=1.5, **keys)
    data = ask(folder, session="i0.g0.m1")
    why = data["steps"][0]["why"]
    assert (why["times"], why["factor"]) == (2, 1.5) and why["result"] == pytest.approx(0.75, abs=1e-4)
    assert data["steps"][0]["advantage"] == pytest.approx(0.75, abs=1e-4)
    other = ask(folder, session="i0.g1.m1")
    assert "times" not in other["steps"][0]["why"]  # 0 times anything is 0


@pytest.mark.parametrize(
    ("form", "needs"),
    [("short", ["", "", "process ≥ 1"]), ("long", ["", "", "process ≥ 1", "judge ≥ 1"]),
     ("general", ["", "", "process + format ≥ 1.1", "judge ≥ 0.5"])],
)  # fmt: skip
def test_the_stages_of_prs(tmp_path, form, needs):
    folder = write_run(tmp_path / "run", iterations=0, prs_form=form, prs_thresholds=[1.1, 0.5])
    played = made_run.episode(0, 0, 1)
    played.facts = {"prs": {"process": 1.0, "format": 0.1, "judge": 0.0, "answer": None}, "environment_return": 0.5}
    with PoolWriter(folder / "pool.sqlite") as pool:
        pool.add(Event("run", 0), *session_records(played, "i0.g0.m1", iteration=0, env="made"))
        pool.add(Credit(0, 0, "i0.g0.m1", 0, 1.0))
    mark = ask(folder, session="i0.g0.m1")["marks"]["prs"]
    assert [stage["needs"] for stage in mark["stages"]] == needs and (mark["form"], mark["paid"]) == (form, 0.5)
    assert mark["stages"][0]["value"] == 1.0 and mark["stages"][-1]["value"] is None


def test_returns_that_count_as_equal_beside_the_others_of_their_batch(tmp_path):
    """0 and 0.01 in an iteration with returns up to 200: the tolerance is 0.02."""
    folder = write_run(tmp_path / "run", iterations=0)
    totals = [[0.0, 0.01], [0.0, 200.0]]
    with PoolWriter(folder / "pool.sqlite") as pool:
        pool.add(Event("run", 0))
        for group, members in enumerate(totals):
            for member, total in enumerate(members):
                played = made_run.episode(0, group, member)
                played.steps[-1] = replace(played.steps[-1], reward=total)
                name, advantage = f"i0.g{group}.m{member}", (2 * member - 1) * 0.7071 * group
                pool.add(
                    *session_records(played, name, iteration=0, env="made"), BatchRow(0, 0, 2 * group + member, name)
                )
                pool.add(*(Credit(0, 0, name, ordinal, advantage) for ordinal in range(len(played.steps))))
    why = ask(folder, session="i0.g0.m1")["steps"][0]["why"]
    assert (why["kind"], why["result"]) == ("equal", 0.0) and "at most 0.02 count as equal" in why["formula"]
    assert ask(folder, session="i0.g1.m1")["steps"][0]["why"]["kind"] == "standardized"
