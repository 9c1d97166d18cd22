"""Many searches side by side: which states come next, and what their children change.

A tick expands the current state of every active task at once; the engine sees all siblings as one batch, and the
learner makes one optimiser step of all groups. No task waits for another one's end: a tick waits for one response of
each and one environment step, and when a task is done the next one of the stream takes its place.

Between ticks everything is here, in the driver: runners that die take nothing with them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from rl_agents.data.tasks import SEARCH, TRAINING, item_at, stream_seed
from rl_agents.data.trajectory import Trajectory
from rl_agents.rollout.branching import BranchPoint, BranchSpec, Expansion
from rl_agents.rollout.env_calls import EnvReply
from rl_agents.search.groups import Group, Sibling
from rl_agents.search.metrics import SearchCounts
from rl_agents.search.rewards import allocation, step_rewards
from rl_agents.search.statistics import StateStatistics
from rl_agents.search.tree import Mark, Node, Ranked, Search
from rl_agents.settings import Settings

Expand = Callable[[Sequence[BranchSpec]], Sequence[Expansion]]


class SearchError(RuntimeError):
    """No task is left that may be explored."""


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
    """What a tick brought.

    Attributes:
        siblings: one-step trajectories whose reward is the step reward of eq. 2; those of one state share a group.
        finished: trajectories that ended, those that an environment failed included.
    """

    siblings: list[Trajectory] = field(default_factory=list)
    finished: list[Trajectory] = field(default_factory=list)


class Explorer:
    """The searches of a run and what they know.

    Attributes:
        position: tasks taken from the training stream.
        requests: states looked at so far; numbers the groups.
        overdraft: sampled actions beyond the budget of the iterations so far.
        drawn: marks and title of the search that the picture shows.
    """

    def __init__(self, settings: Settings, tasks: Sequence[str]) -> None:
        self.settings, self.tasks = settings, tasks
        self.statistics = StateStatistics(settings)
        self.searches: list[Search] = []
        self.position = self.requests = self.overdraft = 0
        self.counts = SearchCounts()
        self.drawn: tuple[str, list[Mark]] = ("", [])
        #: Tasks whose environment failed before the start state was known.
        self._unopened: list[Trajectory] = []
        #: Siblings of tasks that were left since the last tick (``search_update=task``).
        self._due: list[Trajectory] = []
        #: Paths that came to a closed state since the last tick.
        self._truncated: list[Trajectory] = []

    # --- an iteration ------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """A new iteration begins."""
        self.counts = SearchCounts()

    def has_budget(self) -> bool:
        """Whether the iteration may sample on; what a tick took beyond the budget is missing from the next one."""
        return len(self.counts.steps) + self.overdraft < self.settings.search_steps

    def end(self) -> None:
        """The iteration is over."""
        self.overdraft += len(self.counts.steps) - self.settings.search_steps
        self.statistics.end_iteration()

    def metrics(self) -> dict[str, float]:
        """Metrics of the iteration so far."""
        return self.counts.metrics(len(self.statistics), sum(len(search.frontier) for search in self.searches))

    # --- a tick ------------------------------------------------------------------------------------------------

    def plan(self, expand: Expand) -> list[Request]:
        """Decide what to expand: drop closed states, leave tasks that are done, begin others.

        Args:
            expand: asks runners; here only to look at start states.

        Raises:
            SearchError: every task's start state is closed.
        """
        idle = 0
        while True:
            self._open(expand)
            requests = [request for search in self.searches if (request := self._decide(search))]
            left = [search for search in self.searches if search.current is None]
            for search in left:
                self._leave(search)
            idle = 0 if any(search.expansions for search in left) else idle + len(left)
            if not left:
                return self._chosen(requests)
            if idle > len(self.tasks) + self.settings.tasks_per_iteration:
                raise SearchError(
                    f"the start states of {idle} tasks in a row are closed (score_xi={self.settings.score_xi:g} "
                    f"failures and a success rate of at most score_zeta={self.settings.score_zeta:g}) or broken "
                    f"({self._unopened[-1].end_cause if self._unopened else 'none is'}): raise score_xi, or let counts "
                    "fade with state_decay"
                )

    def apply(self, requests: Sequence[Request], expansions: Sequence[Expansion]) -> Tick:
        """Take in what a tick brought: rewards of all its groups first, then counts, then the next states."""
        tick = Tick(self._due, self._unopened + self._truncated)
        self._due, self._unopened, self._truncated = [], [], []
        ranked = [self._rank(request, expansion) for request, expansion in zip(requests, expansions, strict=True)]
        for request, expansion, children in zip(requests, expansions, ranked, strict=True):
            self._note(request, expansion)
            origin = request.search.current
            assert origin is not None
            tick.siblings += self._siblings(request, children)
            self._observe(origin, children)
            self._go_on(request.search, expansion, children)
            tick.finished += self._finish(request.search, origin, expansion, children)
            self._backtrack(request.search)
        # Those that had their turn are the last in line.
        served = {id(request.search) for request in requests}
        self.searches.sort(key=lambda search: id(search) in served)
        return tick

    # --- planning ----------------------------------------------------------------------------------------------

    def _open(self, expand: Expand) -> None:
        """Begin tasks until all places are taken, and look at their start states."""
        while len(self.searches) < self.settings.tasks_per_iteration:
            task_id = item_at(self.tasks, self.position, self.settings.seed, TRAINING)
            seed = stream_seed(self.settings.seed, SEARCH, self.position)
            self.searches.append(Search(self.position, task_id, seed))
            self.position += 1
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
                cause = expansion.end_cause
                self._unopened.append(
                    Trajectory(search.task_id, search.number, 0, search.seed, end_cause=cause, failed=True)
                )
            else:
                search.open(Node.start(expansion.answer, self._key(search, expansion.answer, 1), expansion.snapshot))

    def _decide(self, search: Search) -> Request | None:
        """What to do at the search's current state; None when there is no state left."""
        if self._is_spent(search):
            search.end()
        while search.current is not None:
            score, rollouts = allocation(search.current, self.statistics)
            if rollouts:
                # Nobody learns from siblings yet: whole episodes say more about states than broad trees.
                rollouts = 1 if self.statistics.iteration < self.settings.critic_warmup else rollouts
                return Request(search, self._spec(search, rollouts), score, rollouts)
            self._decided(search.current, search, score, 0)
            search.marks[search.current.place].outcome = "closed"
            if self.settings.search_closed == "failed":
                self._truncated.append(self._ended(search, search.current, "closed", success=False, failed=False))
            self.counts.backtracks += search.backtrack()
        return None

    def _is_spent(self, search: Search) -> bool:
        settings = self.settings
        limited = settings.search_max_steps and search.steps >= settings.search_max_steps
        return search.finished >= settings.search_max_finished or bool(limited)

    def _spec(self, search: Search, rollouts: int) -> BranchSpec:
        assert search.current is not None
        seeds = tuple(stream_seed(search.seed, search.expansions, member) for member in range(rollouts))
        return BranchSpec(-1, search.point(search.current), seeds)

    def _chosen(self, requests: Sequence[Request]) -> list[Request]:
        """The states of this tick, numbered; those that lead to no update come with any others."""
        chosen, groups = [], 0
        limit = self.settings.search_batch_groups or math.inf
        for request in requests:
            groups += request.rollouts > 1
            if groups <= limit or request.rollouts == 1:
                chosen.append(request)
        numbered = [replace(r, spec=replace(r.spec, group_id=self.requests + i)) for i, r in enumerate(chosen)]
        self.requests += len(numbered)
        return numbered

    def _leave(self, search: Search) -> None:
        self.searches.remove(search)
        self.counts.tasks_ended += 1
        if search.expansions:
            self.drawn = (search.task_id, search.marks)
        for group in search.waiting:
            self._due += group.trajectories(search.task_id, search.seed, group.rewards(self.statistics))

    # --- taking in ---------------------------------------------------------------------------------------------

    def _rank(self, request: Request, expansion: Expansion) -> list[Ranked]:
        """Children by reward, descending; equal ones in the order of their seeds, broken ones last."""
        search = request.search
        parent = search.current
        assert parent is not None
        whole = [child for child in expansion.children if not child.failed]
        nodes = [
            parent.after(child.step, child.answer, self._key(search, child.answer, parent.depth + 1), child.snapshot)
            for child in whole
        ]
        ended, won = [bool(child.end_cause) for child in whole], [child.success for child in whole]
        rewards = step_rewards(parent, nodes, ended, won, self.statistics) if nodes else ()
        ranked = [Ranked(c, n, float(r)) for c, n, r in zip(whole, nodes, rewards, strict=True)]
        broken = [Ranked(child, None, 0.0) for child in expansion.children if child.failed]
        return sorted(ranked, key=lambda item: -item.reward) + broken

    def _siblings(self, request: Request, children: Sequence[Ranked]) -> list[Trajectory]:
        """What the learner gets at once: nothing from a state that is only walked through."""
        usable = [item for item in children if item.node is not None]
        search, parent = request.search, request.search.current
        assert parent is not None
        if request.rollouts < 2 or len(usable) < 2:
            return []
        self.counts.branched += 1
        siblings = tuple(Sibling(i.node, i.child.end_cause, i.child.success) for i in usable if i.node is not None)
        group = Group(request.spec.group_id, parent, siblings)
        if self.settings.search_update == "task":
            search.waiting.append(group)
            return []
        return group.trajectories(search.task_id, search.seed, [item.reward for item in usable])

    def _observe(self, origin: Node, children: Sequence[Ranked]) -> None:
        """Count the steps for the chain of states."""
        if self.statistics.chain is None:
            return
        whole = [(item.node.key, bool(item.child.end_cause), item.child.success) for item in children if item.node]
        if whole:
            self.statistics.chain.observe(origin.key, *zip(*whole, strict=True))

    def _finish(
        self, search: Search, origin: Node, expansion: Expansion, children: Sequence[Ranked]
    ) -> Iterator[Trajectory]:
        """Count and yield the trajectories that ended; those that broke are yielded and never counted."""
        if expansion.end_cause:
            yield self._ended(search, origin, expansion.end_cause, success=False, failed=expansion.failed)
        for item in children:
            if item.node is None:
                broken = origin.after(item.child.step, item.child.answer, origin.key)
                yield self._ended(search, broken, item.child.end_cause, success=False, failed=True)
            elif item.child.end_cause:
                yield self._ended(search, item.node, item.child.end_cause, success=item.child.success, failed=False)

    def _ended(self, search: Search, last: Node, cause: str, *, success: bool, failed: bool) -> Trajectory:
        trajectory = search.trajectory(last, cause, success=success, failed=failed)
        search.finished += 1
        if not failed:
            path = last.path()
            weights = self._weights(path)
            for node, weight in zip(path, weights, strict=True):
                node.finished, node.solved = node.finished + weight, node.solved + weight * success
            terminal = last.step is not None and cause not in ("context_length", "closed")
            end = -1 if terminal and self.settings.state_terminal == "ignored" else None
            self.statistics.finish([node.key for node in path[:end]], success, weights[:end])
        return trajectory

    def _weights(self, path: Sequence[Node]) -> list[float]:
        """What a trajectory counts at each of its states: 1, or the policy's share of this way on from there."""
        weights = [1.0]
        for node in reversed(path[1:]):
            weights.append(weights[-1] * (node.share if self.settings.search_weights == "reach" else 1.0))
        return weights[::-1]

    def _go_on(self, search: Search, expansion: Expansion, children: Sequence[Ranked]) -> None:
        settings = self.settings
        search.expansions += 1
        search.steps += len(children)
        first = expansion.children[0] if settings.search_order == "sampled" and expansion.children else None
        self.counts.skipped += search.descend(
            children, backtrack=settings.search_backtrack, skip=settings.search_skip, first=first
        )

    def _backtrack(self, search: Search) -> None:
        if search.current is None and not self._is_spent(search):
            self.counts.backtracks += search.backtrack()

    def _note(self, request: Request, expansion: Expansion) -> None:
        node, counts = request.search.current, self.counts
        assert node is not None
        self._decided(node, request.search, request.score, request.rollouts)
        counts.steps += [child.step for child in expansion.children]
        counts.env_steps += expansion.env_steps
        counts.replayed_steps += expansion.replayed_steps

    def _decided(self, node: Node, search: Search, score: float, rollouts: int) -> None:
        mark = search.marks[node.place]
        mark.score, mark.rollouts = score, rollouts
        self.counts.scores.append(score)
        self.counts.rollouts.append(rollouts)

    def _key(self, search: Search, answer: EnvReply, depth: int) -> str:
        named = answer.anchor if self.settings.state_name == "anchor" else answer.observation
        key = self.statistics.key(search.task_id, named, depth)
        self.counts.states.add(key)
        return key
