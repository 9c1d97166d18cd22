"""What searches ask runners for, what they hand to the learner, and what is kept for the picture."""

from collections.abc import Sequence
from typing import Any

from rollout.tree_search.drawn import Copied, Drawn, World, explorer_of

from rl_agents.rollout.branching import BranchSpec, Expansion
from rl_agents.rollout.tree_search.explorer import Explorer
from rl_agents.rollout.tree_search.states import state_key

TASKS = tuple("abcdef")


class Listening(World):
    """Remembers everything that runners were asked for."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.asked: list[BranchSpec] = []

    def expand(self, specs: Sequence[BranchSpec]) -> list[Expansion]:
        self.asked += specs
        return super().expand(specs)


def starts(explorer: Explorer, ticks: int = 9) -> list[tuple[str, int]]:
    """(task, seed of its reset) of the searches that begin within some ticks."""
    world = Listening()
    for _ in range(ticks):
        world.tick(explorer)
    return [(spec.point.task_id, spec.point.seed) for spec in world.asked if not spec.seeds]


def test_every_request_has_its_own_number_and_every_sample_its_own_seed() -> None:
    explorer, world = explorer_of(TASKS, tasks_per_iteration=2, search_max_finished=5), Listening()
    for _ in range(9):
        world.tick(explorer)
    numbers = [spec.group_id for spec in world.asked]
    seeds = [seed for spec in world.asked for seed in spec.seeds]
    assert sorted(numbers) == list(range(len(numbers))) and len(seeds) > 40
    assert len(set(seeds)) == len(seeds), "two equal seeds at one state would sample the same action"


def test_tasks_and_their_worlds_follow_from_the_runs_seed() -> None:
    keys: dict[str, Any] = {"tasks_per_iteration": 2, "search_max_finished": 1}
    first, again, other = (explorer_of(TASKS, **keys) for _ in range(3))
    other.seed = 7
    found = starts(first)
    assert found == starts(again) and sorted(task for task, _ in found[: len(TASKS)]) == list(TASKS)
    assert len({seed for _, seed in found}) == len(found), "no two searches play the same world"
    assert not {seed for _, seed in found} & {seed for _, seed in starts(other)}
    explorer = explorer_of(TASKS, tasks_per_iteration=2, search_max_finished=1)
    explorer.left_out = {"a", "b", "c"}
    assert {task for task, _ in starts(explorer)} == {"d", "e", "f"}


class Flaky(Drawn):
    """Its first reset fails, or the second one does."""

    broken = 1

    def reset(self, **keys: Any) -> tuple[str, dict[str, Any]]:
        type(self).resets += 1
        if self.resets == self.broken:
            raise OSError("no such game file")
        return super().reset(**keys)


def test_tasks_and_states_that_cannot_be_reached_are_reported_and_never_counted() -> None:
    class First(Flaky):
        resets = 0

    explorer = explorer_of(("house", "home"))
    (request,), tick = World(First).tick(explorer)
    broken, *_ = tick.finished
    assert (broken.group_id, broken.member, broken.failed, len(broken.steps)) == (0, 0, True, 0)
    assert "OSError: no such game file" in broken.end_cause and broken.seed != request.search.seed
    assert {broken.task_id, request.search.task_id} == {"house", "home"} and request.search.number == 1

    class Second(Flaky):
        resets, broken = 0, 3

    explorer, world = explorer_of(), World(Second, "replay")
    ticks = [world.tick(explorer)[1] for _ in range(2)]
    (failed,) = [t for tick in ticks for t in tick.finished if t.failed]
    assert "OSError" in failed.end_cause and not failed.truncated and not failed.terminated
    assert explorer.states.finished == sum(not t.failed for tick in ticks for t in tick.finished)


def test_what_a_snapshot_saves() -> None:
    class Counted(Copied):
        resets = 0

    snapshots, replay = World(Counted, "snapshot"), World(branching="replay")
    explorer, walked = explorer_of(), 0
    for _ in range(5):
        snapshots.tick(explorer)
    assert Counted.resets == 1 and explorer.counts.replayed_steps == 0, "one reset, to look at the start state"
    explorer = explorer_of()
    for _ in range(5):
        (request,), tick = replay.tick(explorer)
        walked += len(request.spec.point.actions) * len({t.steps[0].action for t in tick.samples})
    assert explorer.counts.replayed_steps == walked == 13, "the way to the state, once for each action that differs"


def test_keys_of_states_stay_what_they_are_in_saved_searches() -> None:
    text = "You are in the hall."
    assert state_key("house", text, explorer_of().settings) == "83d03cd79d7b38d76152f081"
    assert state_key("house", text, explorer_of(state_scope="task").settings) == "5cba797d2da2aec58d43bb8a"


class Asking(Copied):
    """Says what the right answer would have been."""

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        *rest, info = super().step(action)
        return *rest, {**info, "references": ["Paris"]}  # type: ignore[return-value]


def test_finished_paths_keep_what_rewards_read() -> None:
    explorer, world = explorer_of(), World(Asking)
    finished = [t for _ in range(2) for t in world.tick(explorer)[1].finished]
    assert finished and all(t.facts["references"] == ["Paris"] for t in finished)
