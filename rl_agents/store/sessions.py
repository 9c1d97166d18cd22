"""Trajectories as records, and records as trajectories."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

from rl_agents.data.trajectory import Step, Trajectory
from rl_agents.store.records import Call, Outcome, Record, Session, SessionKind


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
        parents: of every step's call; default: the call of the step before. A parent that a prompt does not go on
            from costs space only.
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
    """Return what a finished trajectory leaves in a pool beside its steps."""
    return Session(
        session, kind, iteration, t.group_id, t.member, t.seed, env, t.task_id, t.terminated, t.truncated, t.end_cause,
        t.failed, t.success, t.metrics, t.facts,
    )  # fmt: skip


def call_record(step: Step, call: int, parent: int = 0) -> Call:
    """Return what was sampled in a step."""
    return Call(
        call, parent, step.prompt_ids, step.response_ids, step.logprobs, step.policy_version, step.finish_reason,
        version_spans=step.version_spans,
    )  # fmt: skip


def outcome_record(step: Step, session: str, ordinal: int, call: int) -> Outcome:
    """Return what the world answered to a step's call."""
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
    """Return the trajectory that `session_records` was given."""
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
