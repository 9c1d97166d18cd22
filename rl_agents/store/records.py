"""The records of a pool: one data class per table, append-only.

A *call* is one sampled response. Its id is the seed that it was sampled with, which derives from the run's seed and the
call's place in it: writing it twice leaves one row, and a run that continues after a crash finds what it had sampled.
Only a call that had to be made again (an engine died and took its answer along) has another id than its seed. A
*session* is an episode (or, in a search, one sibling): an ordered list of calls and what the world answered to each.
What was learned (`Batch`, `Credit`) and what people decided (`Curation`) stand in rows of their own; nothing is ever
changed in place.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from rl_agents.data.trajectory import Step, Trajectory

SessionKind = Literal["episode", "sample", "gateway", "evaluation"]
#: What people may decide about a session or a step; ``weight`` and ``reward`` carry a value, ``note`` only a text.
Verdict = Literal["exclude", "keep", "reward", "weight", "note"]


@dataclass(frozen=True, slots=True)
class Call:
    """One sampled response, whole.

    Attributes:
        id: 63 bits; the sampling seed, unless the call was made again.
        parent: the call whose prompt and response this prompt begins with; 0: none. Only the rest is stored.
        prompt_ids: exact ids that the engine read.
        response_ids: exact ids that it sampled, end-of-turn token included.
        logprobs: engine's log-probability per sampled id (float32).
        policy_version: of the weights (those of the first sampled id).
        finish_reason: ``stop`` or ``length``.
        seed: that it was sampled with; 0: its id.
        version_spans: (version, ids) in order, where weights changed inside the response; empty: they did not.
    """

    id: int
    parent: int
    prompt_ids: list[int]
    response_ids: list[int]
    logprobs: list[float]
    policy_version: int
    finish_reason: str
    seed: int = 0
    version_spans: tuple[tuple[int, int], ...] = ()

    @property
    def sampling_seed(self) -> int:
        return self.seed or self.id


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the world answered to a call: the rest of a `rl_agents.data.trajectory.Step`.

    Attributes:
        ordinal: place of the step in its session's list.
        next_step: see `rl_agents.data.trajectory.Step.next_step`.
    """

    session: str
    ordinal: int
    call: int
    observation: str
    anchor: str
    action: str
    reward: float
    valid: bool
    next_step: int | None = None


@dataclass(frozen=True, slots=True)
class Session:
    """One episode that is over, without its steps.

    Attributes:
        id: unique in the pool.
        iteration: of the training run, from 0; -1 outside one.
        seed: of the episode, as in `rl_agents.data.trajectory.EpisodeSpec`.
        env: the environment's name.
        facts, metrics: as in `rl_agents.data.trajectory.Trajectory`; plain JSON.
    """

    id: str
    kind: SessionKind
    iteration: int
    group_id: int
    member: int
    seed: int
    env: str
    task_id: str
    terminated: bool
    truncated: bool
    end_cause: str
    failed: bool
    success: bool
    metrics: dict[str, float] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Batch:
    """A session that an update was trained on: row ``position`` of update ``update`` of iteration ``iteration``.

    A batch counts until an `Event` of kind ``resumed`` that was written after it says that a run went on before it
    (``event.iteration <= batch.iteration``): the weights that it made are gone, and its sessions are to be
    trained on again. The same holds for sessions of those iterations.
    """

    iteration: int
    update: int
    position: int
    session: str


@dataclass(frozen=True, slots=True)
class Credit:
    """What one session's step was worth in one update; means over the step's sampled tokens, None: not computed.

    The value is the mean over those tokens that the critic is read at: with StepPO the state's, before the first token.
    """

    iteration: int
    update: int
    session: str
    ordinal: int
    advantage: float
    value: float | None = None


@dataclass(frozen=True, slots=True)
class Curation:
    """A decision of a person or a script. Later rows win over earlier ones; `Curation.undoes` takes one back.

    Attributes:
        session: whose.
        ordinal: of the step that the verdict is about; -1: the session as a whole.
        value: of ``reward`` (instead of the recorded one; of a session: of its last step) and ``weight``.
        by, why: who decided, and the reason, for people.
        undoes: number of the curation row that this one takes back; 0: none.
    """

    session: str
    verdict: Verdict
    ordinal: int = -1
    value: float | None = None
    by: str = ""
    why: str = ""
    undoes: int = 0


@dataclass(frozen=True, slots=True)
class Exchange:
    """A gateway's call as its client saw it; two rows per call, ``started`` before sampling and ``finished`` after.

    Attributes:
        call: id of the sampled call.
        session: the gateway's session.
        state: ``started``, ``finished`` or ``failed`` (with the reason in ``answer``).
        request_hash: SHA-256 of path and canonical body, to know a retry by.
        retry: what the client's SDK counts in ``x-stainless-retry-count``; -1: no such header.
        dialect: ``chat_completions``, ``responses`` or ``messages``.
        request: the messages that the parent call had not had, tools and parameters, plain JSON.
        answer: what was answered, plain JSON; of a failure the reason.
        overridden: what the client asked for and training decided otherwise, plain JSON.
    """

    call: int
    session: str
    state: Literal["started", "finished", "failed"]
    request_hash: str = ""
    retry: int = -1
    dialect: str = ""
    request: dict[str, Any] = field(default_factory=dict)
    answer: dict[str, Any] = field(default_factory=dict)
    overridden: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Opening:
    """A gateway session that was opened; its `Session` row follows when it ends.

    Attributes:
        key_hash: SHA-256 of the session's key.
        task: what the agent was given, plain JSON.
    """

    session: str
    group_id: int
    member: int
    seed: int
    task_id: str
    key_hash: str = ""
    task: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RewardNote:
    """A reward that came from outside, for a call of a gateway session or (``call=0``) for the session."""

    session: str
    value: float
    call: int = 0
    why: str = ""


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened to the run.

    Attributes:
        kind: ``run`` (it began), ``checkpoint`` (written) and ``resumed`` (from one).
        iteration: completed ones; what has a smaller number is in the checkpoint.
    """

    kind: str
    iteration: int = -1
    facts: dict[str, Any] = field(default_factory=dict)


Record = Call | Outcome | Session | Batch | Credit | Curation | Exchange | Opening | RewardNote | Event


def session_records(
    trajectory: Trajectory,
    session: str,
    *,
    kind: SessionKind = "episode",
    iteration: int = -1,
    env: str = "",
    parents: Sequence[int] | None = None,
) -> list[Record]:
    """Return all that a finished trajectory leaves in a pool; one `PoolWriter.add` takes them together.

    Args:
        session: id, unique in the pool.
        parents: of every step's call; default: the call of the step before. A parent that a prompt does not
            continue costs space only.
    """
    names = [call_of(step, session, ordinal) for ordinal, step in enumerate(trajectory.steps)]
    before = [0, *names][: len(names)] if parents is None else parents
    records: list[Record] = []
    for ordinal, (step, name, parent) in enumerate(zip(trajectory.steps, names, before, strict=True)):
        records += [call_record(step, name, parent), outcome_record(step, session, ordinal, name)]
    return [*records, session_record(trajectory, session, kind=kind, iteration=iteration, env=env)]


def session_record(
    t: Trajectory, session: str, *, kind: SessionKind = "episode", iteration: int = -1, env: str = ""
) -> Session:
    """Return what a finished trajectory leaves in a pool besides its steps."""
    return Session(
        session, kind, iteration, t.group_id, t.member, t.seed, env, t.task_id, t.terminated, t.truncated, t.end_cause,
        t.failed, t.success, t.metrics, t.facts,
    )  # fmt: skip


def call_record(step: Step, call: int, parent: int = 0) -> Call:
    return Call(
        call, parent, step.prompt_ids, step.response_ids, step.logprobs, step.policy_version, step.finish_reason,
        version_spans=step.version_spans,
    )  # fmt: skip


def outcome_record(step: Step, session: str, ordinal: int, call: int) -> Outcome:
    return Outcome(
        session, ordinal, call, step.observation, step.anchor, step.action, step.reward, step.valid, step.next_step
    )


def call_of(step: Step, session: str, ordinal: int) -> int:
    """Return the id of a step's call: its seed; below 0, from its place, for one that was sampled without."""
    if step.call:
        return step.call
    digest = hashlib.sha256(f"{session}\n{ordinal}".encode("utf-8", "surrogatepass")).digest()
    return -1 - (int.from_bytes(digest[:8], "little") >> 1)


def trajectory_of(session: Session, outcomes: Sequence[Outcome], calls: Mapping[int, Call]) -> Trajectory:
    s = session
    return Trajectory(
        s.task_id, s.group_id, s.member, s.seed, [_step(outcome, calls[outcome.call]) for outcome in outcomes],
        s.terminated, s.truncated, s.end_cause, s.failed, s.success, s.metrics, s.facts,
    )  # fmt: skip


def _step(outcome: Outcome, call: Call) -> Step:
    return Step(
        call.prompt_ids, call.response_ids, call.logprobs, call.policy_version, call.finish_reason,
        outcome.observation, outcome.anchor, outcome.action, outcome.reward, outcome.valid,
        max(call.id, 0), outcome.next_step, version_spans=call.version_spans,
    )  # fmt: skip
