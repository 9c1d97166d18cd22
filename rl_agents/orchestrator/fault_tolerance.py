"""What happens when engines or env runners are lost: who is brought back, who is waited for, and which task is blamed.

Engines get the last weights again. An env runner that is back says in which task's environment its predecessor died;
it gets engines and recorder, and is asked for work again. Nobody waits for one runner while others are alive, except
for `COME_BACK_S`: before what was lost is played again, it should be known whether a task kills its process.
"""

from __future__ import annotations

import threading
import time
from collections import Counter

from rl_agents.data.trajectory import EpisodeSpec, Trajectory
from rl_agents.errors import EpisodesFail
from rl_agents.inference.engine_group import InferenceGroup
from rl_agents.orchestrator.env_runner_handles import RunnerLost, Runners
from rl_agents.orchestrator.runner_calls import SetEngines, SetRecorder, lost_task
from rl_agents.orchestrator.runner_engines import RunnerEngines
from rl_agents.rollout.branching import BranchSpec
from rl_agents.rollout.branching_check import Reached

#: For lost runners to come back while others are alive; who takes longer joins later.
COME_BACK_S = 10.0
#: For one to come back while none is alive.
RESTART_PATIENCE_S = 120.0
#: For a runner that is back to say in which task its predecessor died.
ANSWER_S = 10.0
#: Deaths of env runners in one task after which its episodes fail; one may be the machine's doing.
MAX_DEATHS = 2
#: Tasks that kill env runners, while nothing else is completed, after which a run ends.
MAX_DEADLY_TASKS = 3
DIED = "env_died: the environment ends its process (os._exit, a crash in C) or hangs in C"


class Losses:
    """Brings engines and env runners back.

    Attributes:
        recording: gives every env runner what writes to the pool; None: nothing is recorded.
        deaths: how often an env runner died while it called the environment of a task.
    """

    def __init__(self, runners: Runners, inference: InferenceGroup | RunnerEngines | None) -> None:
        """
        Args:
            inference: the engine actors, given to all runners, or the engines that are in their processes.
        """
        self.runners, self.inference = runners, inference
        self.recording: SetRecorder | None = None
        self.deaths: Counter[str] = Counter()
        self._missed: set[int] = set()
        self._restoring = threading.RLock()

    def connect(self) -> None:
        """Give every env runner the engines' handles, and what it records with, before it gets anything else to do."""
        with self._restoring:
            self._equip(self.runners.ids())

    def restore(self, events: list[str]) -> bool:
        """Bring engines and then runners back; return whether some died in environments.

        Args:
            events: gets a line that names the runners which are not back in time.

        Raises:
            EngineError, LearnerLost: see `InferenceGroup.restore`.
        """
        with self._restoring:
            self.restore_engines()
            blamed = self.welcome(COME_BACK_S)
            end = time.monotonic() + RESTART_PATIENCE_S - COME_BACK_S
            while self.runners.remote and not self.runners.ids() and time.monotonic() < end:
                blamed += self.welcome(1.0)
            events += self.overdue(COME_BACK_S if self.runners.ids() else RESTART_PATIENCE_S)
            return bool(blamed)

    def restore_engines(self) -> None:
        """Bring engines back with the last weights; runners learn of those that were replaced."""
        if self.inference is None:
            return
        with self._restoring:
            if isinstance(self.inference, RunnerEngines):
                self.inference.restore()
                return
            before = self.inference.handles()
            self.inference.restore()
            if self.runners.remote and self.inference.handles() != before:
                self.runners.tell(self.runners.ids(), SetEngines(self.inference.handles()))

    def welcome(self, wait_s: float) -> list[str]:
        """Take lost runners in that are back; return the tasks in whose environments they died.

        Args:
            wait_s: for all of them, in seconds, but for those that were `overdue` while others are alive; 0: only see
                who is back already.
        """
        with self._restoring:
            back = self.runners.come_back(wait_s, self._missed if self.runners.ids() else ())
            asked = {runner: self.runners.send(runner, lost_task) for runner in back}
            self._equip(back)
            tasks, end = list[str](), time.monotonic() + ANSWER_S
            while asked and (ready := self.runners.wait(list(asked.values()), max(0.0, end - time.monotonic()))):
                for runner in [runner for runner, call in asked.items() if call in ready]:
                    tasks += self._task_of(runner, asked.pop(runner))
            self.deaths.update(tasks)
            self._missed &= set(self.runners.absent())
            return tasks

    def awaited(self) -> list[int]:
        """Return those that are lost and not `overdue` yet."""
        return sorted(set(self.runners.absent()) - self._missed)

    def overdue(self, waited_s: float) -> list[str]:
        """Return a line that names the runners which are still away, each once."""
        late = self.awaited()
        self._missed |= set(late)
        others = "the others go on without it" if self.runners.ids() else "none is alive"
        return [f"env runner {', '.join(map(str, late))} is not back after {waited_s:.0f} s; {others}"] if late else []

    def _task_of(self, runner: int, call: object) -> list[str]:
        try:
            task: str = self.runners.answer(call)
        except RunnerLost:
            self.runners.lose(runner, kill=False)
            return []
        return [task] if task else []

    def _equip(self, runners: list[int]) -> None:
        if isinstance(self.inference, RunnerEngines):
            self.runners.tell(runners, self.inference.call())
        elif self.runners.remote and self.inference is not None:
            self.runners.tell(runners, SetEngines(self.inference.handles()))
        if self.recording is not None:
            self.runners.tell(runners, self.recording)

    # --- tasks in which env runners die ------------------------------------------------------------------------

    def deadly(self, job: EpisodeSpec | BranchSpec | Reached) -> bool:
        """Whether env runners die in the job's task."""
        task = job.point.task_id if isinstance(job, BranchSpec) else job.task_id
        return self.deaths[task] >= MAX_DEATHS

    def check_deaths(self, completed: int) -> None:
        """Raise `EpisodesFail` when env runners die in several tasks and nothing else was ``completed``."""
        deadly = [task for task, count in self.deaths.items() if count >= MAX_DEATHS]
        if len(deadly) >= MAX_DEADLY_TASKS and not completed:
            raise EpisodesFail(f"no episode was completed; {len(deadly)} tasks, such as {deadly[0]}: {DIED}")


def failed_episode(spec: EpisodeSpec, cause: str) -> Trajectory:
    """Return the trajectory of an episode that could not be played."""
    return Trajectory(spec.task_id, spec.group_id, spec.member, spec.seed, end_cause=cause, failed=True)
