"""Episodes in which an environment or a judge failed, counted by cause."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from rl_agents.data.trajectory import Trajectory
from rl_agents.errors import EpisodesFail

MAX_CAUSE = 160
REMEDY = "; agents' errors are excluded from training, env.error_reward=NUMBER trains on them with that reward"


@dataclass
class FailedEpisodes:
    """Number of failed episodes by cause.

    Attributes:
        causes: counts; causes that differ only in numbers are one.
        examples: the first episode of each cause.
    """

    total: int = 0
    causes: Counter[str] = field(default_factory=Counter)
    examples: dict[str, Trajectory] = field(default_factory=dict)

    @classmethod
    def of(cls, episodes: Iterable[Trajectory]) -> FailedEpisodes:
        found = cls()
        for episode in episodes:
            found.total += 1
            if episode.failed:
                kind = re.sub(r"\d+", "#", episode.end_cause)
                found.causes[kind] += 1
                found.examples.setdefault(kind, episode)
        return found

    def __add__(self, other: FailedEpisodes) -> FailedEpisodes:
        return FailedEpisodes(self.total + other.total, self.causes + other.causes, {**other.examples, **self.examples})

    @property
    def share(self) -> float:
        return self.causes.total() / self.total if self.total else 0.0

    def sentence(self, what: str = "episodes") -> str:
        text = f"{self.causes.total()} of {self.total} {what} failed"
        if not self.causes:
            return text
        ((kind, count),) = self.causes.most_common(1)
        cause = " ".join(self.examples[kind].end_cause.split())
        cause = cause if len(cause) <= MAX_CAUSE else cause[: MAX_CAUSE - 3] + "..."
        return f"{text}; most often ({count}): {cause}{REMEDY if self.agent_errors else ''}"

    def error(self, sentence: str) -> EpisodesFail:
        """Return the error of a run that ends for this; its notes are the traceback of the most frequent cause."""
        ((kind, _),) = self.causes.most_common(1)
        error = EpisodesFail(sentence)
        error.repeats = _kind(kind) in TWICE
        if text := self.examples[kind].facts.get("traceback"):
            error.add_note(f"In the environment:\n{text}")
        return error

    @property
    def agent_errors(self) -> int:
        return sum(count for kind, count in self.causes.items() if kind.startswith(AGENT_ERROR))


#: The cause of a black-box agent that raised or returned no result.
AGENT_ERROR = "agent_error"
#: Causes that exclude a task the first time, and those that exclude it the second time.
AT_ONCE, TWICE = ("env_timeout", "env_died"), ("env_error", "env_garbage")
#: The cause that is the fault of neither the task nor its environment.
JUDGE = "judge_error"


@dataclass
class BadTasks:
    """Tasks whose environment fails with any policy; they are no longer sampled.

    Attributes:
        left_out: excluded tasks with their causes.
        strikes: by task; the second one excludes it.
    """

    left_out: dict[str, str] = field(default_factory=dict)
    strikes: Counter[str] = field(default_factory=Counter)

    def observe(self, episodes: Sequence[Trajectory]) -> dict[str, str]:
        """Exclude tasks, and return the new ones with their causes.

        A task is excluded if all its episodes of a batch hung or ended their process, or if they raised or returned
        invalid values in two batches. If more than half of all episodes fail, the environment is to blame and no task
        is excluded. Judges' failures do not count: the next tasks are drawn before judges answer.
        """
        broken = [episode for episode in episodes if episode.failed and _kind(episode.end_cause) != JUDGE]
        if not episodes or len(broken) > 0.5 * len(episodes):
            return {}
        by_task: dict[str, list[Trajectory]] = {}
        for episode in episodes:
            by_task.setdefault(episode.task_id, []).append(episode)
        new: dict[str, str] = {}
        for task, own in by_task.items():
            causes = {_kind(episode.end_cause) for episode in own}
            if not all(episode.failed for episode in own) or not causes <= {*AT_ONCE, *TWICE}:
                continue
            self.strikes[task] += 2 if causes & set(AT_ONCE) else 1
            if self.strikes[task] >= 2 and task not in self.left_out:
                new[task] = own[0].end_cause
        self.left_out.update(new)
        return new

    def observe_environment(self, name: str, episodes: Sequence[Trajectory]) -> str:
        """Return a line if all episodes of one of several environments fail; the third batch in a row excludes it."""
        if not all(episode.failed and _kind(episode.end_cause) != JUDGE for episode in episodes):
            self.strikes.pop(name, None)
        elif episodes and name not in self.left_out:
            self.strikes[name] += 1
            line, causes = FailedEpisodes.of(episodes).sentence(f"episodes of {name}"), ("", "", "; it is excluded now")
            if self.strikes[name] == len(causes):
                self.left_out[name] = episodes[0].end_cause
            return f"{line}{causes[self.strikes[name] - 1]}; training continues on the others"
        return ""


def _kind(cause: str) -> str:
    return cause.partition(":")[0]
