"""Concurrent searches: which states are expanded next, and how their samples update the searches.

A tick expands the current state of every active task at once. The engine receives all samples as one batch, and the
learner makes one optimizer step of all groups. No task waits for another one's end: a tick waits for one response and
one environment step of each, and the next task of the stream replaces a completed one.

Between ticks all state is here, in the driver, so that dying runners lose nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace

from rl_agents.config.sections import SearchKeys
from rl_agents.data.difficulty import Difficulty
from rl_agents.data.tasks import SEARCH, draw_tasks, stream_seed
from rl_agents.data.trajectory import Trajectory
from rl_agents.rollout.branching import BranchPoint, BranchSpec, Expansion
from rl_agents.rollout.env_calls import EnvReply
from rl_agents.rollout.tree_search.metrics import SearchCounts
from rl_agents.rollout.tree_search.states import PATH, Outcomes, States, state_key
from rl_agents.rollout.tree_search.tree import Node, Ranked, Search

Expand = Callable[[Sequence[BranchSpec]], Sequence[Expansion]]

#: Consecutive states that environments fail, without samples in between, after which an iteration ends; more if more
#: tasks are searched concurrently.
PATIENCE = 8


class SearchError(RuntimeError):
    """No task may be explored anymore."""


@dataclass(frozen=True, slots=True)
class Request:
    """A state that a tick expands.

    Attributes:
        score, rollouts: S and n(s), decided before the tick.
    """

    search: Search
    spec: BranchSpec
    score: float
    rollouts: int


@dataclass(slots=True)
class Tick:
    """The result of a tick.

    Attributes:
        samples: for the learner, each a trajectory of one step whose reward is the step reward; siblings share a group.
            Paths that ended come last, each in a group of its own.
        finished: trajectories that ended, including those that an environment failed.
    """

    samples: list[Trajectory] = field(default_factory=list)
    finished: list[Trajectory] = field(default_factory=list)


class Explorer:
    """The searches of a run and their knowledge.

    Args:
        most: maximum samples of one state (G_max).

    Attributes:
        position: number of tasks taken from the training stream.
        requests: number of requested states so far, which numbers the groups.
        overdraft: sampled actions beyond the budget of the iterations so far.
    """

    def __init__(
        self, settings: SearchKeys, tasks: Sequence[str], states: States, *, width: int, most: int, seed: int
    ) -> None:
        self.settings, self.tasks, self.states = settings, tasks, states
        self.width, self.most, self.seed = width, most, seed
        self.searches: list[Search] = []
        self.iteration = self.position = self.requests = self.overdraft = 0
        self.counts = SearchCounts()
        #: Tasks whose environment failed before the start state was known.
        self._broken: list[Trajectory] = []
        #: Consecutive states that environments failed.
        self._fruitless = 0
        #: Trajectories that the environment ended in the present tick, with the states of their paths.
        self._ended: list[tuple[list[str], Trajectory]] = []
        #: Tasks that are no longer sampled.
        self.left_out: Collection[str] = ()
        self.difficulty: Difficulty | None = None

    # --- an iteration ------------------------------------------------------------------------------------------

    def begin_iteration(self) -> None:
        self.counts, self._fruitless = SearchCounts(), 0

    def has_budget(self) -> bool:
        """Return whether the iteration may continue; samples beyond its budget are deducted from the next one's."""
        return len(self.counts.steps) + self.overdraft < self.settings.search_steps and not self._gives_up()

    def _gives_up(self) -> bool:
        """Return whether environments fail everything; the checks of failed episodes then decide about the run."""
        return self._fruitless >= max(self.width, PATIENCE)

    def end_iteration(self) -> None:
        self.overdraft += len(self.counts.steps) - self.settings.search_steps
        self.iteration += 1
        self.states.end_iteration()

    def metrics(self) -> dict[str, float]:
        return self.counts.metrics(len(self.states), sum(len(search.frontier) for search in self.searches))

    # --- a tick ------------------------------------------------------------------------------------------------

    def select(self, expand: Expand) -> list[Request]:
        """Choose the states to expand: drop closed ones, leave completed tasks, begin others.

        Args:
            expand: sends requests to runners; here only to observe start states.

        Returns:
            An empty list if environments fail consecutive start states.

        Raises:
            SearchError: every task's start state is closed.
        """
        idle = 0
        while True:
            self._open_searches(expand)
            requests = [request for search in self.searches if (request := self._select_state(search))]
            done = [search for search in self.searches if search.current is None]
            for search in done:
                self.searches.remove(search)
            self.counts.tasks_ended += len(done)
            closed = sum(not search.failed for search in done)
            idle = 0 if any(search.expansions for search in done) else idle + closed
            if not done or self._gives_up():
                return self._numbered(requests)
            if idle > len(self.tasks) / (self.difficulty.uniform if self.difficulty else 1) + self.width:
                raise SearchError(
                    f"the start states of {idle} tasks in a row are closed (many failures, hardly a success): "
                    "raise score_xi"
                )

    def update(self, requests: Sequence[Request], expansions: Sequence[Expansion]) -> Tick:
        """Process the results of a tick: rewards of all its groups first, then counts, then the next states."""
        tick = Tick(finished=self._broken)
        self._broken = []
        self._fruitless = 0 if any(not e.failed for e in expansions) else self._fruitless + len(expansions)
        ranked = [self._rank(request, expansion) for request, expansion in zip(requests, expansions, strict=True)]
        for request, expansion, children in zip(requests, expansions, ranked, strict=True):
            search, origin = request.search, request.search.current
            assert origin is not None
            self._record(request, expansion)
            tick.samples += self._samples(request, children)
            if any(item.node for item in children):
                self.states.observe(origin.key, outcomes(children))
            self._descend(search, children)
            tick.finished += self._finish(search, origin, expansion, children)
            if search.current is None and not self._is_spent(search):
                self.counts.backtracks += search.backtrack()
        tick.samples += self._paths()
        return tick

    # --- choosing states ---------------------------------------------------------------------------------------

    def _open_searches(self, expand: Expand) -> None:
        busy, count = {search.task_id for search in self.searches}, self.width - len(self.searches)
        drawn = draw_tasks(self.tasks, self.position, count, self.seed, self.left_out, self.difficulty, busy)
        for position, task_id in enumerate(drawn, self.position):
            self.searches.append(Search(position, task_id, stream_seed(self.seed, SEARCH, position)))
        self.position += len(drawn)
        closed = [search for search in self.searches if not search.opened]
        if not closed:
            return
        first = self.requests
        specs = [BranchSpec(first + i, BranchPoint(s.task_id, s.seed)) for i, s in enumerate(closed)]
        expansions = expand(specs)
        self.requests += len(specs)
        for search, expansion in zip(closed, expansions, strict=True):
            search.opened = True
            if expansion.answer is None:
                self._fruitless += 1
                search.failed, cause = True, expansion.end_cause
                self._broken.append(
                    Trajectory(search.task_id, search.number, 0, search.seed, end_cause=cause, failed=True)
                )
            else:
                key = self._key(search, expansion.answer)
                search.current = Node.start(expansion.answer, key, expansion.snapshot)

    def _select_state(self, search: Search) -> Request | None:
        """Return the search's next state and its n(s), backtracking from closed ones; None if no state is left.

        A path that is dropped at a closed state has not ended, so no state counts it.
        """
        if self._is_spent(search):
            search.current = None
            search.frontier.clear()
        while (node := search.current) is not None:
            score, rollouts = self.states.allocation(node.key, node.depth, self.most)
            if rollouts:
                seeds = tuple(stream_seed(search.seed, search.expansions, member) for member in range(rollouts))
                return Request(search, BranchSpec(-1, search.point(node), seeds), score, rollouts)
            self._record_choice(node, score, 0)
            self.counts.backtracks += search.backtrack()
        return None

    def _is_spent(self, search: Search) -> bool:
        return search.ends >= self.settings.search_max_finished

    def _numbered(self, requests: Sequence[Request]) -> list[Request]:
        numbered = [replace(r, spec=replace(r.spec, group_id=self.requests + i)) for i, r in enumerate(requests)]
        self.requests += len(numbered)
        return numbered

    # --- taking in ---------------------------------------------------------------------------------------------

    def _rank(self, request: Request, expansion: Expansion) -> list[Ranked]:
        """Sort children by reward, descending; equal ones in the order of their seeds, failed ones last."""
        search, parent = request.search, request.search.current
        assert parent is not None
        whole = [child for child in expansion.children if not child.failed]
        nodes = [parent.after(c.step, c.answer, self._key(search, c.answer), c.snapshot) for c in whole]
        children = [Ranked(child, node, 0.0) for child, node in zip(whole, nodes, strict=True)]
        if children:
            rewards = self.states.step_rewards(parent.path_keys(), outcomes(children))
            children = [replace(c, reward=float(r)) for c, r in zip(children, rewards, strict=True)]
        broken = [Ranked(child, None, 0.0) for child in expansion.children if child.failed]
        return sorted(children, key=lambda item: -item.reward) + broken

    def _samples(self, request: Request, children: Sequence[Ranked]) -> list[Trajectory]:
        """Return the samples for the learner; none of a state with fewer than two children."""
        usable = [item for item in children if item.node is not None]
        if request.rollouts < 2 or len(usable) < 2:
            return []
        search, group = request.search, request.spec.group_id
        facts = {"search": {"score": request.score, "rollouts": request.rollouts}}
        return [
            Trajectory(
                search.task_id, group, member, search.seed, [replace(item.child.step, reward=item.reward)],
                terminated=True, end_cause=item.child.end_cause or "branched", success=item.child.success,
                facts=facts,
            )
            for member, item in enumerate(usable)
        ]  # fmt: skip

    def _descend(self, search: Search, children: Sequence[Ranked]) -> None:
        search.expansions += 1
        # A sibling that ended while a better one continues does not end the path.
        search.ends += not children or children[0].node is None or bool(children[0].child.end_cause)
        self.counts.skipped += search.descend(children, backtrack=self.settings.search_backtrack)

    def _finish(
        self, search: Search, origin: Node, expansion: Expansion, children: Sequence[Ranked]
    ) -> Iterator[Trajectory]:
        """Count and yield the trajectories that ended; failed ones are not counted."""
        if expansion.end_cause:
            yield self._finished(search, origin, expansion.end_cause, failed=expansion.failed)
        for item in children:
            cause, success = item.child.end_cause, item.child.success
            if item.node is None:
                broken = origin.after(item.child.step, item.child.answer, origin.key)
                yield self._finished(search, broken, cause, failed=True)
            elif cause:
                yield self._finished(search, item.node, cause, success=success)

    def _finished(
        self, search: Search, last: Node, cause: str, *, success: bool = False, failed: bool = False
    ) -> Trajectory:
        trajectory, path = search.trajectory(last, cause, success=success, failed=failed), last.path_keys()
        search.finished += 1
        if not failed:
            self.states.finish(path, success)
            if trajectory.terminated or cause == "max_turns":
                self._ended.append((path, trajectory))
        return trajectory

    def _paths(self) -> list[Trajectory]:
        """Return the paths that ended in the tick as samples for the learner, valued after all results of the tick.

        Steps keep the log-probabilities and versions of the weights that sampled them.
        """
        found = []
        for path, trajectory in self._ended:
            gains = self.states.path_gains(path, trajectory.success, trajectory.terminated)
            if gains.any():
                rewarded = zip(trajectory.steps[-len(gains) :], gains, strict=True)
                steps = [replace(step, reward=float(gain)) for step, gain in rewarded]
                found.append(
                    replace(
                        trajectory, group_id=self.requests, member=0, steps=steps, end_cause=PATH, facts={}, metrics={}
                    )
                )
                self.requests += 1
        self._ended = []
        self.counts.paths += len(found)
        return found

    def _record(self, request: Request, expansion: Expansion) -> None:
        node, counts = request.search.current, self.counts
        assert node is not None
        self._record_choice(node, request.score, request.rollouts)
        counts.steps += [child.step for child in expansion.children]
        counts.env_steps += expansion.env_steps
        counts.replayed_steps += expansion.replayed_steps

    def _record_choice(self, node: Node, score: float, rollouts: int) -> None:
        node.score, node.rollouts = score, rollouts
        self.counts.scores.append(score)
        self.counts.rollouts.append(rollouts)

    def _key(self, search: Search, answer: EnvReply) -> str:
        text = answer.anchor if self.settings.state_key == "anchor" else answer.observation
        key = state_key(search.task_id, text, self.settings)
        self.counts.states.add(key)
        return key


def outcomes(children: Sequence[Ranked]) -> Outcomes:
    """Return the outcomes of children that did not fail. The turn limit is no end, because it belongs to no state."""
    whole = [(item.node.key, item.child) for item in children if item.node]
    keys, reached = zip(*whole, strict=True)
    ended = tuple(child.success or child.end_cause not in ("", "max_turns") for child in reached)
    return Outcomes(keys, ended, tuple(child.success for child in reached))
