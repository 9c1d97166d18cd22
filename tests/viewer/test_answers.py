"""The data of the viewer's pages: runs, groups, episodes, tokens, trees and tasks, and refused requests."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from viewer.made_run import HOSTILE, LONG, STALLED, sample_group, search_records, step, write_counts, write_run

from rl_agents.data.trajectory import Trajectory
from rl_agents.store.records import Credit, Event, call_record, session_records
from rl_agents.store.trajectory_store import PoolWriter
from rl_agents.viewer.answers import answer
from rl_agents.viewer.curves import axes, ends
from rl_agents.viewer.episodes import LONG as FIRST_PIECE
from rl_agents.viewer.runs import Catalog, find_runs
from rl_agents.viewer.step_values import split_thoughts
from rl_agents.web.errors import ApiError


@pytest.fixture(scope="module")
def catalog(tmp_path_factory: pytest.TempPathFactory) -> Catalog:
    folder = tmp_path_factory.mktemp("runs")
    one, two = write_run(folder / "one"), write_run(folder / "two", seed=1)
    with PoolWriter(one / "pool.sqlite") as pool:
        pool.add(*search_records())
    return find_runs([str(one), str(two)])


def ask(catalog: Catalog, view: str, **values: object) -> dict:
    return json.loads(answer(catalog, view, {name: str(value) for name, value in values.items()}))


def test_the_start_page(catalog):
    data = ask(catalog, "runs")
    one = data["runs"][0]
    assert (one["name"], one["settings"]["algo"], one["iteration"], one["last"]) == ("one", "grpo", 3, 2)
    few = "56 episodes of 7 tasks. success on few tasks (7) says little about others: add test tasks (at least 20 "
    note = f"{few}different tasks)"
    assert one["evaluation"] == {
        "iteration": 0, "rate": 0.25, "start": 0.25, "low": None, "high": None, "note": note
    }  # fmt: skip
    assert data["bands"] == [["one", "two"]]  # they differ in their seed alone
    assert ask(catalog, "series", run="one")["series"]["rollout/success_rate"] == [[0, 0], [1, 0.1], [2, 0.2], [3, 0.3]]


def test_a_curriculum_is_that_of_the_newest_checkpoint(tmp_path):
    folder = write_run(tmp_path / "run", task_sampling="difficulty")
    catalog = find_runs([str(folder)])
    none = {"run": "run", "iteration": None, "tasks": 0, "rows": []}
    assert ask(catalog, "curriculum", run="run") == none
    write_counts(folder, {"solved": (8.0, 8.0), "half": (4.0, 8.0)})
    found = ask(catalog, "curriculum", run="run")
    assert (found["iteration"], found["tasks"], [row[0] for row in found["rows"]]) == (3, 2, ["half", "solved"])
    assert found["rows"][0][1:] == pytest.approx([4.75 / 9, 8, 4.75 * 4.25 / 81])
    assert found["rows"][1][2:] == [8, 0]


def test_where_iterations_are_on_other_axes(catalog):
    """Costs add up: turns of rollouts and of the collapse monitor; a search's executed actions replace its paths'."""
    found = ask(catalog, "series", run="one")["axes"]
    assert found == {
        "environment steps": [[0, 0], [1, 40], [2, 80], [3, 120]],
        "sampled tokens": [[0, 0], [1, 500], [2, 1000], [3, 1500]],
        "seconds": [[0, 0], [1, 2], [2, 4], [3, 6]],
    }  # fmt: skip
    searched = axes([{"iteration": 1, "search/env_steps": 9.0, "rollout/turns": 3.0}])
    assert searched == {"environment steps": [(1, 9.0)]}


def test_a_sweep_shows_trials_that_began_after_the_page(tmp_path):
    write_run(tmp_path / "sweep" / "trials" / "000-a")
    sweep = find_runs([str(tmp_path / "sweep")])
    before = ask(sweep, "state")["stamps"]
    (tmp_path / "sweep" / "trials" / "002-c").mkdir()  # a trial that has nothing to show yet
    assert ask(sweep, "state")["stamps"] == before and list(before) == ["sweep/000-a"]
    write_run(tmp_path / "sweep" / "trials" / "001-b", seed=1)
    assert list(ask(sweep, "state")["stamps"]) == ["sweep/000-a", "sweep/001-b"]  # the page redraws when one changes
    assert [run["name"] for run in ask(sweep, "runs")["runs"]] == ["sweep/000-a", "sweep/001-b"]
    assert ask(sweep, "sweep", sweep="sweep")["runs"] == {"000-a": "sweep/000-a", "001-b": "sweep/001-b"}


def test_how_episodes_ended(catalog):
    """A cause missing from an iteration has share 0; causes beyond the first seven are summed into one."""
    found = ask(catalog, "series", run="one")["ends"]
    assert found == {
        "causes": ["truncated_by_rule", "terminated"], "points": [[1, 0, 0.375], [2, 0.625, 0.375], [3, 0.625, 0.375]],
    }  # fmt: skip
    many = ends([{"iteration": 1, **{f"end_cause/c{n}": 0.1 for n in range(10)}}])
    assert many["causes"] == [*(f"c{n}" for n in range(6)), "other"] and many["points"][0][-1] == pytest.approx(0.4)
    assert ends([{"iteration": 1}]) == {"causes": [], "points": []}


def test_iterations_of_the_pool_are_those_of_the_metrics_less_one(catalog):
    rows = ask(catalog, "iterations", run="two")["rows"]
    assert [(row["iteration"], row["sampled"], row["figures"]["rollout/success_rate"]) for row in rows] == [
        (2, True, 0.3), (1, True, 0.2), (0, True, 0.1),
    ]  # fmt: skip


def test_groups_and_their_filters(catalog):
    def found(**values: object) -> list[int]:
        return [row["group"] for row in ask(catalog, "groups", run="two", iteration=1, **values)["rows"]]

    rows = ask(catalog, "groups", run="two", iteration=1)["rows"]
    assert [(row["task"], [m["return"] for m in row["members"]], row["invalid"]) for row in rows] == [
        ("task/a", [0, 1, 1, 1], 0), ("task b", [0, 0, 0, 0], 1),
    ]  # fmt: skip
    assert rows[0]["members"][0]["advantages"] == pytest.approx([-1.5, -1.5], abs=1e-4)
    assert found(outcome="solved") == found(min="0.5") == [0]
    assert found(outcome="invalid") == found(flat="1") == [1]
    assert found(text="DROP IT") == found(cause="truncated_by_rule") == found(max="0") == [0, 1]
    assert found(text="no such words") == found(outcome="failed") == []


def test_the_steps_with_the_lowest_and_highest_advantages(catalog):
    steps = ask(catalog, "steps", run="two", iteration=2)
    found = [(row["session"], row["ordinal"], row["alike"]) for row in steps["lowest"]]
    assert found == [
        ("i2.g0.m0", 1, 2)
    ]  # its steps are one row, that of the last; all others have nonnegative advantages
    assert steps["lowest"][0]["advantage"] == pytest.approx(-1.5, abs=1e-4)
    assert [row["advantage"] for row in steps["highest"]] == pytest.approx([0.5] * 3, abs=1e-4)
    assert steps["learned"] and all(row["advantage"] for row in steps["lowest"])  # group 1 has none


def test_an_episode_and_why_its_steps_are_worth_that(catalog):
    data = ask(catalog, "episode", run="two", session="i1.g0.m0")
    cut = {"rule": "t3", "turn": 2, "because": STALLED}
    assert data["facts"]["truncation"] == cut and data["marks"] == {"truncation": {**cut, "keys": {}}}
    assert data["end_cause"].startswith("truncated_by_rule")
    first = data["steps"][0]
    assert (first["action"], first["prompt_tokens"], first["tokens"]) == (HOSTILE, 5, 3)
    assert first["logprob"] == pytest.approx(-1.25)
    why = first["why"]
    assert (why["kind"], why["members"], why["mean"]) == ("standardized", 4, 0.75)
    assert why["result"] == pytest.approx(first["advantage"], abs=1e-6)


def test_long_texts_come_in_pieces(catalog):
    step = ask(catalog, "episode", run="two", session="i1.g1.m0")["steps"][0]
    assert (len(step["observation"]), step["cut"]) == (FIRST_PIECE, {"observation": len(LONG)})
    place = {"run": "two", "session": "i1.g1.m0", "ordinal": 0, "field": "observation"}
    piece = ask(catalog, "text", **place, start=999_990)
    assert piece == {"text": "x" * 10, "start": 999_990, "length": 1_000_000}


def test_a_group_side_by_side(catalog):
    data = ask(catalog, "group", run="two", iteration=0, group=0, kind="episode")
    assert [m["id"] for m in data["members"]] == [f"i0.g0.m{member}" for member in range(4)]
    assert [len(m["list"]) for m in data["members"]] == [2, 2, 2, 3]
    assert data["figures"] == {"members": 4, "mean": 0.75, "deviation": 0.5}


def test_failures_come_first_and_actions_before_thoughts(tmp_path):
    """Members are sorted by outcome; a response with thoughts is shown action first, its thoughts separately."""
    folder = write_run(tmp_path / "run", iterations=1)
    thought = "<think>" + "so " * 600 + "</think>"
    with PoolWriter(folder / "pool.sqlite") as pool:
        for member, (won, reward) in enumerate([(True, 1.0), (False, 0.5), (False, 0.0)]):
            one = step(member, 0, f"{thought} <action>go {member}</action>")
            played = Trajectory("t", 5, member, member, [replace(one, reward=reward)], True, success=won)
            pool.add(*session_records(played, f"new{member}", iteration=0, env="made"))
            pool.add(Credit(0, 0, f"new{member}", 0, -9.0 - member))
    catalog = find_runs([str(folder)])
    data = ask(catalog, "group", run="run", iteration=0, group=5)
    assert [m["id"] for m in data["members"]] == ["new2", "new1", "new0"]
    first = data["members"][0]["list"][0]
    assert first["action"] == "<action>go 2</action>" and first["cut"] == {"thought": len(thought)}
    rows = [row for row in ask(catalog, "groups", run="run", iteration=0)["rows"] if row["group"] == 5]
    assert [m["id"] for m in rows[0]["members"]] == ["new2", "new1", "new0"]
    lowest = ask(catalog, "steps", run="run", iteration=0)["lowest"][0]
    assert lowest["action"].startswith("<action>go 2</action> <think>so")


@pytest.mark.parametrize(
    ("response", "parts"),
    [
        ("<think>a</think> <action>b</action>", ("<action>b</action>", "<think>a</think>")),
        (
            "the prompt has opened it</think>\n<answer>b</answer>",
            ("<answer>b</answer>", "the prompt has opened it</think>"),
        ),
        ("Thought: I should look.\nAction: look", ("Action: look", "Thought: I should look.")),
        ("<reasoning>never closed", ("", "<reasoning>never closed")),
    ],
)
def test_thoughts_are_told_apart(response, parts):
    assert split_thoughts(response) == parts


def test_tokens_without_a_tokenizer(catalog):
    data = ask(catalog, "tokens", run="two", session="i1.g0.m1", ordinal=1)
    assert (data["prompt"]["ids"], data["response"]["ids"]) == ([0, 1, 2, 3, 4, 5], [11, 11, 12])
    assert (data["logprobs"], data["versions"], data["decoded"]) == ([-0.5, -0.25, -3.0], [101, 101, 101], False)
    assert data["advantage"] == pytest.approx(0.5, abs=1e-4)


def test_a_search_as_a_tree(catalog):
    rows = ask(catalog, "searches", run="one")["rows"]
    assert [(row["seed"], row["samples"], row["finished"], row["solved"]) for row in rows] == [("77", 5, 1, 1)]
    data = ask(catalog, "tree", run="one", seed=77)
    root, *others = data["nodes"]
    assert (root["n"], root["score"], root["tick"], root["observation"]) == (3, 1.0, 1, "you see room 0")
    first = [node for node in others if node["parent"] == "0"]
    assert [node["action"] for node in first] == ["first 0", "first 1", "first 2"]
    assert [node["outcome"] for node in first] == ["open"] * 3 and first[0]["advantage"] > 0 > first[1]["advantage"]
    assert (first[1]["n"], first[1]["score"], first[1]["tick"]) == (2, 0.25, 2)
    ends = [node for node in others if node["parent"] == first[1]["id"]]
    assert [(node["outcome"], node["depth"]) for node in ends] == [("success", 3), ("failure", 3)]
    assert ask(catalog, "searches", run="two")["rows"] == []


def test_samples_hang_where_they_were_taken_before_a_path_through_that_state_ends(tmp_path):
    folder = write_run(tmp_path / "run", iterations=1)
    first = step(77, 0, "first 0").call
    walked = [step(88, ordinal, "on the way") for ordinal in range(2)]
    samples = [step(89, ordinal, "far down") for ordinal in range(2)]
    with PoolWriter(folder / "pool.sqlite") as pool:
        pool.add(*search_records())
        pool.add(*(call_record(one, one.call, at) for one, at in zip(walked, (first, walked[0].call), strict=True)))
        pool.add(*sample_group(77, 2, 42, samples, walked[1].call, (0.5, 2), ("branched",) * 2))
    nodes = {node["id"]: node for node in ask(find_runs([str(folder)]), "tree", run="run", seed=77)["nodes"]}
    assert [nodes[str(one.call)]["depth"] for one in samples] == [5, 5]
    assert nodes[str(walked[0].call)]["parent"] == str(first) and nodes[str(walked[1].call)]["score"] == 0.5
    assert sorted(node["tick"] for node in nodes.values() if node["tick"]) == [1, 2, 3, 4, 5]


def test_a_path_of_a_search_has_the_worth_of_its_samples(catalog):
    steps = ask(catalog, "episode", run="one", session="i0.g9.m0")["steps"]
    assert [step["sample"] for step in steps] == ["i0.u0.g40.m1", "i0.u1.g41.m0"]
    assert steps[0]["advantage"] < 0 < steps[1]["advantage"] and steps[1]["step_reward"] == 1.0


def test_one_task_over_iterations_and_runs(catalog):
    runs = ask(catalog, "task", task="task b")["runs"]
    assert list(runs) == ["one", "two"] and [row["iteration"] for row in runs["two"]] == [0] * 4 + [1] * 4 + [2] * 4


def test_words_are_found_the_newest_first(catalog):
    data = ask(catalog, "search", run="two", text="Take The Lamp")
    assert len(data["hits"]) == 24 and data["next"] is None
    hit = data["hits"][0]
    assert (hit["session"], hit["ordinal"], hit["hit"], hit["part"]) == ("i2.g1.m3", 1, "take the lamp", "action")


@pytest.mark.parametrize(
    ("view", "values", "status", "words"),
    [
        ("episode", {"run": "on", "session": "x"}, 404, "did you mean 'one'"),
        ("episode", {"run": "one", "session": "x"}, 404, "no session 'x'"),
        ("groups", {"run": "one", "iteration": "1.5"}, 400, "not a whole number"),
        ("tokens", {"run": "one", "session": "i1.g0.m0", "ordinal": "2"}, 404, "no step 3"),
        ("text", {"run": "one", "session": "i1.g0.m0", "ordinal": "0", "field": "x"}, 400, "no field"),
    ],
)
def test_what_makes_no_sense_is_refused(catalog, view, values, status, words):
    with pytest.raises(ApiError, match=words) as refusal:
        answer(catalog, view, values)
    assert refusal.value.status == status


def test_iterations_that_a_resumption_took_back_are_not_shown(tmp_path):
    folder = write_run(tmp_path / "run")
    with PoolWriter(folder / "pool.sqlite") as pool:
        pool.add(Event("resumed", 1))
    catalog = find_runs([str(folder)])
    found = ask(catalog, "groups", run="run", iteration=2)
    assert found["rows"] == [] and found["causes"] == {}
    assert ask(catalog, "steps", run="run", iteration=2)["lowest"] == []
    assert len(ask(catalog, "groups", run="run", iteration=0)["rows"]) == 2


def test_neither_torch_nor_ray_is_imported(tmp_path):
    folder = write_run(tmp_path / "run")
    program = (
        "import sys, rl_agents.cli.view\n"
        "from rl_agents.viewer.answers import answer\nfrom rl_agents.viewer.runs import find_runs\n"
        f"catalog = find_runs([{str(folder)!r}])\nanswer(catalog, 'runs', {{}})\n"
        "answer(catalog, 'episode', {'run': 'run', 'session': 'i0.g0.m0'})\n"
        "print(sorted({'torch', 'ray', 'transformers', 'matplotlib', 'vllm', 'tokenizers'} & set(sys.modules)))"
    )
    root = str(Path(__file__).parents[2])
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=root, check=True)
    assert done.stdout.strip() == "[]"
