"""Which weights what is known of states comes from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from rl_agents.data.trajectory import Step
from rl_agents.rollout.tree_search.states import MAX_STATES


class ScoreVersions:
    """The oldest and the newest version of the steps that a state's score was estimated with."""

    def __init__(self) -> None:
        self._ranges: dict[str, tuple[int, int]] = {}  # least recently noted first

    def get(self, key: str) -> tuple[int, int] | None:
        """(oldest, newest); None: nothing was counted at the state."""
        return self._ranges.get(key)

    def note(self, keys: Iterable[str], steps: Sequence[Step]) -> None:
        """These steps count in the scores of these states."""
        if not steps:
            return
        versions = [step.policy_version for step in steps]
        for key in keys:
            oldest, newest = self._ranges.pop(key, (versions[0], versions[0]))
            self._ranges[key] = (min(oldest, *versions), max(newest, *versions))
        while len(self._ranges) > MAX_STATES:
            del self._ranges[next(iter(self._ranges))]

    def to_json(self) -> dict[str, Sequence[int]]:
        """Plain data; `load_json` is its inverse."""
        return dict(self._ranges)

    def load_json(self, data: Mapping[str, Sequence[int]]) -> None:
        """Replace everything by what `to_json` returned."""
        self._ranges = {str(key): (int(oldest), int(newest)) for key, (oldest, newest) in data.items()}
