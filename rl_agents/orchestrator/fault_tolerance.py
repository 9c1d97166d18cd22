"""Engines and env runners that come back.

Engines get the last weights again, at once if a runner reports that one failed. A restarted env runner reports in which
task's environment its predecessor died. It gets engines and recorder, and receives work again. While other runners are
alive, the wait for a lost one is at most `COME_BACK_S`, because before lost jobs run again, it should be known whether
a task kills its process.
"""

from __future__ import annotations

import contextlib
import math
import threading
import time
from collections import Counter, deque
from collections.abc import Collection
from operator import methodcaller

from rl_agents.data.trajectory import EpisodeSpec
from rl_agents.errors import EpisodesFail
from rl_agents.inference.engine_group import InferenceGroup
from rl_agents.orchestrator.env_runner_handles import RunnerLost, Runners, SetRecorder, heard
from rl_agents.rollout.branching import BranchSpec

#: Seconds to wait for lost runners while others are alive; a slower one joins later.
COME_BACK_S = 10.0
#: Seconds to wait for a lost runner if none is alive.
RESTART_PATIENCE_S = 120.0
#: Seconds for a restarted runner to report in which task its predecessor died.
ANSWER_S = 10.0
#: Deaths of env runners in one task after which its episodes fail; a single one may have another cause.
MAX_DEATHS = 2
#: Tasks that kill env runners, while nothing else is completed, after which a run ends.
MAX_DEADLY_TASKS = 3
DIED = "env_died: the environment ends its process (os._exit, a crash in C) or hangs in C"


class FaultTolerance:
    """Brings engines and env runners back.

    Attributes:
        recording: gives every env runner its recorder; None: nothing is recorded.
        deaths: number of env runners that died in a call of the environment of a task.
    """

    def __init__(self, runners: Runners, inference: InferenceGroup | None) -> None:
        """
        Args:
            inference: the engine actors, given to all runners; None: the only runner has an engine.
        """
        self.runners, self.inference = runners, inference
        self.recording: SetRecorder | None = None
        self.deaths: Counter[str] = Counter()
        #: Held while engines get weights or are brought back, and while runners get their handles.
        self.lock = threading.RLock()
        #: Held during the wait for lost runners, in which engines may get weights.
        self._returning = threading.RLock()
        self._missed: set[int] = set()
        #: When the last `restore` began.
        self._restored = -math.inf
        #: Engines that failed in requests of runners and were not looked at yet.
        self._failed: deque[tuple[int, str]] = deque()

    def connect(self) -> None:
        """Give every env runner the engines' handles and its recorder, before any work."""
        with self.lock:
            self._equip(self.runners.ids())

    def restore(self, events: list[str], since: float) -> None:
        """Bring engines and then runners back, unless another thread has begun that after the loss at ``since``.

        Args:
            events: receives a line with the runners that are not back in time.

        Raises:
            EngineError, LearnerLost: see `InferenceGroup.restore`.
        """
        with self._returning:
            if self._restored >= since:
                return
            self._restored = time.monotonic()
            self.restore_engines()
            self.welcome(COME_BACK_S)
            end = time.monotonic() + RESTART_PATIENCE_S - COME_BACK_S
            while self.runners.remote and not self.runners.ids() and time.monotonic() < end:
                self.welcome(1.0)
            events += self.overdue(COME_BACK_S if self.runners.ids() else RESTART_PATIENCE_S)

    def engine_failed(self, engine: int, event: str) -> None:
        """Bring an engine actor back at once, while runners continue with others (`restore_failed`)."""
        self._failed.append((engine, event))
        threading.Thread(target=self.restore_failed, name="restore-engines", daemon=True).start()

    def restore_failed(self) -> None:
        """Return when all engines that were reported are back; the next weights or rounds meet what does not come."""
        with self.lock, contextlib.suppress(Exception):
            if failed := dict(self._failed.popleft() for _ in range(len(self._failed))):
                print(f"[rl_agents] {'; '.join(failed.values())}; restoring it", flush=True)
                self.restore_engines(failed)

    def restore_engines(self, only: Collection[int] | None = None) -> None:
        """Bring engines (all, or ``only`` some actors) back with the last weights, and let runners use them."""
        if self.inference is None:
            return
        with self.lock:
            self.inference.restore(only)
            if self.runners.remote:
                self.runners.tell(self.runners.ids(), methodcaller("set_engines", self.inference.handles()))

    def look(self) -> None:
        """Admit lost runners that are back already, unless another thread is doing that."""
        if self.runners.absent() and self._returning.acquire(blocking=False):
            try:
                self.welcome(0.0)
            finally:
                self._returning.release()

    def welcome(self, wait_s: float) -> None:
        """Admit lost runners that are back, and note the tasks in whose environments they died.

        Args:
            wait_s: seconds to wait for all of them, except `overdue` ones while others are alive.
        """
        with self._returning:
            back = self.runners.come_back(wait_s, self._missed if self.runners.ids() else ())
            asked = {runner: self.runners.send(runner, methodcaller("lost_task")) for runner in back}
            with self.lock:
                self._equip(back)
            for runner, answer in heard(self.runners, asked, ANSWER_S).items():
                if isinstance(answer, RunnerLost):
                    self.runners.lose(runner, kill=False)
                elif answer:
                    self.deaths[answer] += 1
            self._missed &= set(self.runners.absent())

    def overdue(self, waited_s: float) -> list[str]:
        """Return a line with the runners that are still missing and were not reported before."""
        late = sorted(set(self.runners.absent()) - self._missed)
        self._missed |= set(late)
        others = "the others continue without it" if self.runners.ids() else "no env runner is alive"
        causes = "".join(f" ({cause})" for cause in dict.fromkeys(map(self.runners.causes.get, late)) if cause)
        names = ", ".join(map(str, late))
        return [f"env runner {names} is not back after {waited_s:.0f} s{causes}; {others}"] if late else []

    def _equip(self, runners: list[int]) -> None:
        if self.runners.remote and self.inference is not None:
            self.runners.tell(runners, methodcaller("set_engines", self.inference.handles()))
        if self.recording is not None:
            self.runners.tell(runners, self.recording)

    # --- tasks in which env runners die ------------------------------------------------------------------------

    def deadly(self, job: EpisodeSpec | BranchSpec) -> bool:
        task = job.point.task_id if isinstance(job, BranchSpec) else job.task_id
        return self.deaths[task] >= MAX_DEATHS

    def check_deaths(self, completed: int) -> None:
        """Raise `EpisodesFail` if env runners die in several tasks and no other episode was ``completed``."""
        deadly = [task for task, count in self.deaths.copy().items() if count >= MAX_DEATHS]
        if len(deadly) >= MAX_DEADLY_TASKS and not completed:
            raise EpisodesFail(f"no episode was completed; {len(deadly)} tasks, such as {deadly[0]}: {DIED}")
