"""The records of a store: one data class per table, append-only.

A *call* is one sampled response. Its id is its sampling seed, which derives from the run's seed and the position of the
call in the run. So writing it twice leaves one row, and a run that continues after a crash finds its sampled calls.
Only a call that was repeated, because an engine died with its answer, has another id. A *session* is an episode, or one
sibling in a search: an ordered list of calls with the environment's reply to each. Training (`BatchRow`, `Credit`) is
in separate rows. No row is ever changed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from rl_agents.data.trajectory import Step, Trajectory

SessionKind = Literal["episode", "sample", "gateway", "evaluation", "expert"]
#: A fact of an `Event`.
SETTINGS = "settings"


@dataclass(frozen=True, slots=True)
class Call:
    """One sampled response with its prompt; what is not described is as in `rl_agents.data.trajectory.Step`.

    Attributes:
        id: 63 bits; the sampling seed, unless the call was repeated.
        parent: the call whose prompt and response this prompt begins with; 0: none. Only the rest is stored.
        prompt_ids: without the first ``shared`` ids.
        logprobs: float32.
        seed: the sampling seed; 0: its id.
        shared: length of the parent's prompt and response, if the writer need not compare them with this prompt; 0: the
            prompt is whole, as in every call that is read.
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
    shared: int = 0

    @property
    def sampling_seed(self) -> int:
        return self.seed or self.id


@dataclass(frozen=True, slots=True)
class Outcome:
    """The environment's reply to a call: the remaining fields of a `rl_agents.data.trajectory.Step`.

    Attributes:
        ordinal: index of the step in its session.
        next_step, metrics: see `rl_agents.data.trajectory.Step`; None: it has no metrics.
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
    metrics: dict[str, float] | None = None


@dataclass(frozen=True, slots=True)
class Session:
    """A finished episode, without its steps.

    Attributes:
        id: unique in the store.
        iteration: of the training run, from 0; -1: none.
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
class BatchRow:
    """A session of a training batch: row ``position`` of update ``update`` of iteration ``iteration``.

    A batch counts until a later `Event` of kind ``resumed`` with ``event.iteration <= batch.iteration``: the run
    continued from earlier weights, so the weights of this update are lost and its sessions can be trained on again. The
    same holds for sessions of those iterations.
    """

    iteration: int
    update: int
    position: int
    session: str


@dataclass(frozen=True, slots=True)
class Credit:
    """Advantage and value of a step in one update, as means over the step's sampled tokens; None: not computed.

    The value is the mean over the tokens at which the critic is read: with StepPO the state, before the first token.
    """

    iteration: int
    update: int
    session: str
    ordinal: int
    advantage: float
    value: float | None = None


@dataclass(frozen=True, slots=True)
class TokenLoss:
    """What a loss component added to the loss at each sampled token of a step, when an update first trained on it."""

    iteration: int
    update: int
    session: str
    ordinal: int
    component: str
    losses: list[float]


@dataclass(frozen=True, slots=True)
class Exchange:
    """A gateway's call as its client sees it; two rows per call, ``started`` before sampling and ``finished`` after.

    Attributes:
        call: id of the sampled call.
        state: ``started``, ``finished`` or ``failed`` (with the reason in ``answer``).
        request_hash: SHA-256 of path and canonical body, which identifies retries.
        retry: the SDK's ``x-stainless-retry-count``; -1: no such header.
        dialect: ``chat_completions``, ``responses`` or ``messages``.
        request: the messages that are new since the parent call, tools and parameters, plain JSON.
        answer: plain JSON; of a failure the reason.
        overridden: parameters of the client that training overrides, plain JSON.
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
class SessionStart:
    """A gateway session that was opened; its `Session` row follows when it ends.

    Attributes:
        key_hash: SHA-256 of the session's key.
        task: the agent's task, plain JSON.
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
    """A reward sent to a gateway, for a call or (``call=0``) for the session."""

    session: str
    value: float
    call: int = 0
    why: str = ""


@dataclass(frozen=True, slots=True)
class Event:
    """An event of the run.

    Attributes:
        kind: ``run`` (started), ``checkpoint`` (written) or ``resumed`` (from a checkpoint).
        iteration: number of completed iterations; those with smaller numbers are in the checkpoint.
        facts: of ``run`` and ``resumed``, under `SETTINGS`, the keys from then on (config.yaml has only the last ones).
    """

    kind: str
    iteration: int = -1
    facts: dict[str, Any] = field(default_factory=dict)


Record = Call | Outcome | Session | BatchRow | Credit | TokenLoss | Exchange | SessionStart | RewardNote | Event


def session_records(
    trajectory: Trajectory,
    session: str,
    *,
    kind: SessionKind = "episode",
    iteration: int = -1,
    env: str = "",
    parents: Sequence[int] | None = None,
) -> list[Record]:
    """Return all records of a finished trajectory, for one `PoolWriter.add`.

    Args:
        session: id, unique in the store.
        parents: of every step's call; default: the call of the previous step. A parent that the prompt does not extend
            only costs space.
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
        session, ordinal, call, step.observation, step.anchor, step.action, step.reward, step.valid, step.next_step,
        step.metrics or None,
    )  # fmt: skip


def call_of(step: Step, session: str, ordinal: int) -> int:
    """Return the id of a step's call: its seed, or a negative hash of its position if it has no seed."""
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
        max(call.id, 0), outcome.next_step, call.version_spans, outcome.metrics or {},
    )  # fmt: skip
