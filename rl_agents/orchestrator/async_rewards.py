"""Rewards of a stream's groups: given as soon as a group is complete, so that no learner waits for a judge.

With ``lag`` whole batches are judged, see `rl_agents.orchestrator.async_rollouts.Ahead`.

A reward that asks somebody has a thread for each group under way; the judge's own bound (`judge_concurrency`) says how
many questions it has at a time. Any other is worked out at once by whoever brings the group.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from rl_agents.errors import InputError
from rl_agents.orchestrator.group_buffer import Group
from rl_agents.rewards.base import Reward

#: Seconds after which a group is rewarded again that met a user error.
AGAIN_S = 1.0


class Rewarding:
    """Rewards groups once each.

    Attributes:
        error: why a group could not be rewarded.
    """

    def __init__(self, reward: Reward, patience: int, ready: Callable[[Group], None]) -> None:
        """
        Args:
            patience: user errors until one is the run's: a judge that did not answer the first question may answer
                the next one, and a whole batch would have asked them all.
            ready: called with every group that has its rewards, in any order.
        """
        self._reward, self._patience, self._ready = reward, patience, ready
        self.error: BaseException | None = None
        self._closed = threading.Event()
        self._lock = threading.Lock()
        self._refused = 0

    def begin(self, group: Group) -> None:
        """Reward a complete group; `Rewarding.error` says later if that failed."""
        if self._reward.waits:
            threading.Thread(target=self._watched, args=(group,), name="reward", daemon=True).start()
        else:
            self._watched(group)

    def close(self) -> None:
        """Nobody wants rewards any more; questions under way are left to end by themselves."""
        self._closed.set()

    def _watched(self, group: Group) -> None:
        try:
            self._give(group)
        except BaseException as error:
            self.error = error

    def _give(self, group: Group) -> None:
        while not self._closed.is_set():
            try:
                self._reward.apply(group.trajectories())
            except InputError:
                with self._lock:
                    self._refused += 1
                    last = self._refused >= self._patience
                if last or not self._reward.waits:
                    raise
                self._closed.wait(AGAIN_S)
            else:
                if not self._closed.is_set():
                    self._ready(group)
                return
