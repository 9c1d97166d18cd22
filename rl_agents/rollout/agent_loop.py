"""The agent loop: episodes of one policy in text environments, many at once on one event loop.

Engine and environment are awaited. An environment of microseconds runs inline, one call at a time, so that breakpoints
in it work. A slow one runs in coroutines or threads (`env_pool`). The result of an episode depends only on its seed. An
environment that raises, hangs or returns invalid values ends its own episode, with the cause on record. If an engine
fails, its episodes are reported as unfinished, to be run again with the same seed.

T3 (training only): if the truncation rule fires after a turn that does not end the episode, the episode

- ``force_answer``: continues for exactly one turn, before which the agent reads the environment's feedback and the
  instruction to answer now. If that turn ends the task, it is scored as always; if not, the return is 0;
- ``zero``: stops there with return 0;
- ``keep_prefix``: stops there with the rewards so far.

Its last token is terminal in all three cases, and nothing is bootstrapped. Later turns are not run, so that no loss and
no advantage includes them.

With ``context=summary(n)``, a turn whose prompt is too long begins with a step in which the policy writes its own
summary (SUPO, arXiv 2510.06727). The environment does not see it: it is no turn and has the reward 0, and its state key
is its own, so that step-level methods compare it with no other step. Its credit is that of what follows.
"""

from __future__ import annotations

import asyncio
import json
import traceback
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from rl_agents.chat.template import SUMMARY_REQUEST, ContextPolicy, Dialogue, instructed, with_hint
from rl_agents.data.tasks import step_seed
from rl_agents.data.trajectory import NEXT_PROMPT, SUMMARY_ANCHOR, EpisodeSpec, Step, Trajectory, repeated, unrepeated
from rl_agents.envs.base import TextEnv
from rl_agents.inference.base import Engine, EngineError
from rl_agents.inference.engines import local_engine
from rl_agents.rollout.env_calls import EnvFailure, EnvReply, read_reset
from rl_agents.rollout.env_pool import EnvPool
from rl_agents.rollout.env_worker import EnvFactory, EnvGuard
from rl_agents.rollout.recording import Recorder
from rl_agents.rollout.request_queue import Failures, gathered
from rl_agents.rollout.seats import Game, SeatEnv
from rl_agents.rollout.truncation import ANSWER_INSTRUCTION, TurnFacts, reasons
from rl_agents.rollout.turns import Limits, Player, end_cause, is_success, next_dialogue
from rl_agents.tools.thoughts import read_thoughts

#: Number of the first seed of older weights among those of an episode's steps.
FIRST_OLDER = 1 << 31
#: Characters of a traceback that are kept of an episode.
MAX_TRACEBACK = 4000


@dataclass(slots=True)
class Rollouts(Failures):
    """The results of a list of specs, each of which is in either ``trajectories`` or ``unfinished``.

    ``input_error`` is set only if no episode could take a single step because of a user error (no first prompt fits
    the context, or the environment cannot be created).

    Attributes:
        trajectories: in the order of the specs.
        unfinished: specs whose engine failed; run them again with the same seeds.
    """

    #: Without repr, because asyncio.Runner reprs its task's result when it restores the handler of SIGINT.
    trajectories: list[Trajectory] = field(default_factory=list, repr=False)
    unfinished: list[EpisodeSpec] = field(default_factory=list)

    def __reduce__(self) -> tuple[Any, ...]:
        bare = [replace(trajectory, steps=[]) for trajectory in self.trajectories]
        parts = [unrepeated(trajectory.steps) for trajectory in self.trajectories]
        return _received, (bare, parts, self.unfinished, self.engine_errors, self.input_error)

    def by_job(self) -> dict[EpisodeSpec, Trajectory]:
        return {EpisodeSpec(t.task_id, t.group_id, t.member, t.seed): t for t in self.trajectories}


def _received(bare: list[Trajectory], parts: Sequence[Sequence[tuple[int, Step]]], *rest: Any) -> Rollouts:
    for trajectory, own in zip(bare, parts, strict=True):
        trajectory.steps = repeated(own)
    unfinished, errors, input_error = rest
    return Rollouts(bare, unfinished, engine_errors=errors, input_error=input_error)


class Episode:
    def __init__(
        self, spec: EpisodeSpec, env: TextEnv, engine: Engine, context: ContextPolicy, limits: Limits,
        guard: EnvGuard | None = None, recorder: Recorder | None = None,
    ) -> None:  # fmt: skip
        self.spec, self.env, self.limits = spec, env, limits
        self.guard = guard or EnvGuard(spec.task_id, spec.seed, limits.env_timeout_s)
        self.player = Player(engine, context, limits, recorder)
        self.trajectory = Trajectory(spec.task_id, spec.group_id, spec.member, spec.seed)
        if spec.seats > 1:
            self.trajectory.facts["seat"] = spec.seat
        if spec.opponent:
            self.trajectory.facts["opponent"] = spec.opponent[0]
        self.prompt_ids: list[int] = []
        self.answer = EnvReply("")
        self.dialogue = Dialogue.start("")
        self.truncation = limits.truncation
        self.rule = None if self.truncation is None else self.truncation.start(spec.seed)
        self.must_answer = False
        self.hint = ""
        self.turns = 0

    async def play(self) -> Trajectory:
        """Run to the end.

        The trajectory is ``failed``, with the steps so far, if the environment failed. It has no step (cause
        ``context_length``) if the first prompt leaves no room for a response.

        Raises:
            EngineError: the engine failed.
            InputError: the environment reports a user error.
        """
        await self.begin()
        while not self.trajectory.end_cause:
            await self.turn()
        return self.trajectory

    async def begin(self) -> None:
        """Reset the environment.

        Raises:
            InputError: the environment reports a user error.
        """
        options = {"task_id": self.spec.task_id.removeprefix(self.limits.task_prefix)}
        try:
            answer = await self.guard.call(self.env.reset, seed=self.spec.seed, options=options)
            self.answer = read_reset(answer, self.limits.max_observation_characters, self.env)
            self.dialogue = Dialogue.start(self.answer.observation, self.answer.chat)
            if self.answer.chat:
                self.trajectory.facts["chat"] = json.loads(self.answer.chat)
            if self.answer.seat is not None:
                self.trajectory.facts["seat"] = self.answer.seat
        except EnvFailure as failure:
            self._fail(failure)

    async def turn(self, by_hand: str | None = None) -> None:
        """Run one turn; afterwards ``trajectory.end_cause`` is set if the episode has ended.

        Args:
            by_hand: a human's action instead of the policy's, which later reads it as its own.

        Raises:
            EngineError: the engine failed; at most a summary has been added, and the turn may be run again.
            InputError: the environment reports a user error, or ``by_hand`` is too long.
        """
        try:
            await self._turn(by_hand)
        except EnvFailure as failure:
            self._fail(failure)
        else:
            if self.trajectory.end_cause:
                self._record_outcome()

    def _fail(self, failure: EnvFailure) -> None:
        _fail(self.trajectory, failure)
        self._record_outcome()

    async def _turn(self, by_hand: str | None) -> None:
        """Sample a response and let the environment answer, or end the episode if the context is full."""
        self.prompt_ids = await self.player.prompt(self.env, self.guard, self.dialogue)
        if asked := self.player.context.summary_prompt(self.dialogue, self.prompt_ids):
            await self._summarize(asked)
            self.prompt_ids = await self.player.prompt(self.env, self.guard, self.dialogue)
        if not self.player.has_room(self.prompt_ids):
            if self.must_answer:
                self._end_by_rule("no room to answer", zero=True)
            else:
                self.trajectory.end_cause, self.trajectory.truncated = "context_length", True
                await self._keep_next_prompt()
            return
        if by_hand is None:
            step = await self._sampled(self.prompt_ids, self.answer)
        else:
            step = self.player.step_by_hand(self.prompt_ids, by_hand, self.answer)
        # Recorded before the environment answers, so that a failing environment does not hide the action.
        self.trajectory.steps.append(step)
        self.turns += 1
        await self._keep_hint(step)
        self.answer = await self.player.act(self.env, self.guard, step)
        self.dialogue = next_dialogue(self.dialogue, step, self.answer)
        await self._check_end()

    async def _sampled(self, prompt_ids: list[int], answer: EnvReply, most: int = 0) -> Step:
        steps = self.trajectory.steps
        seed, before = step_seed(self.spec.seed, len(steps)), steps[-1] if steps else None
        completion = await self.player.complete(prompt_ids, seed, before.call if before else 0, before, most)
        return self.player.step(prompt_ids, completion, answer, self.dialogue.chat)

    async def _summarize(self, prompt_ids: list[int]) -> None:
        """Let the policy's summary, which may be empty or cut, replace the dialogue; without room, change nothing."""
        most = self.limits.max_summary_tokens or self.limits.max_response_tokens
        if not self.player.has_room(prompt_ids, most):
            return
        own = f"{SUMMARY_ANCHOR}{step_seed(self.spec.seed, len(self.trajectory.steps)):016x}"
        step = await self._sampled(prompt_ids, EnvReply(SUMMARY_REQUEST, anchor=own), most)
        self.trajectory.steps.append(step)
        self.dialogue = self.dialogue.summarized(read_thoughts(step.action).words.strip())

    async def _check_end(self) -> None:
        if self.must_answer:
            ended = self.answer.terminated
            self._end_by_rule("answered" if ended and self.answer.valid else "no answer", zero=not ended)
        elif cause := end_cause(self.answer, self.turns, self.limits.max_turns):
            self.trajectory.end_cause = cause
            self.trajectory.terminated, self.trajectory.truncated = self.answer.terminated, not self.answer.terminated
            await self._keep_next_prompt()
        elif self._rule_fires():
            await self._truncate()

    async def _keep_next_prompt(self) -> None:
        if self.limits.next_prompt and self.trajectory.truncated:
            ids = await self.player.prompt(self.env, self.guard, self.dialogue)
            self.trajectory.facts[NEXT_PROMPT] = ids[: self.limits.max_model_len]

    async def _keep_hint(self, step: Step) -> None:
        """Record what the teacher reads before a step; a prompt that is too long with its hint is read without."""
        self.hint = self.hint if self.answer.hint is None else self.answer.hint
        if not (self.limits.hints and self.hint):
            return
        ids = await self.player.prompt(self.env, self.guard, with_hint(self.dialogue, self.hint))
        if len(ids) + len(step.response_ids) <= self.limits.max_model_len:
            self.trajectory.add_hint(ids)

    def _rule_fires(self) -> bool:
        if self.rule is None:
            return False
        step = self.trajectory.steps[-1]
        turn = TurnFacts(self.turns, step.valid, self.answer.progress, step.action, self.answer.query)
        return self.rule.fires(turn)

    async def _truncate(self) -> None:
        assert self.truncation is not None
        after = self.truncation.after
        fact = {"rule": self.truncation.name, "turn": self.turns, "because": reasons(self.rule)}
        self.trajectory.facts["truncation"] = fact
        if after == "force_answer":
            await self._ask_for_answer()
        else:
            self._end_by_rule("return 0" if after == "zero" else "prefix kept", zero=after == "zero")

    async def _ask_for_answer(self) -> None:
        """Add the instruction to the next observation, and to the anchor, because the state differs now."""
        instruction = await self.guard.call(getattr, self.env, "answer_instruction", ANSWER_INSTRUCTION)
        if not isinstance(instruction, str):
            raise EnvFailure(f"env_garbage: answer_instruction is {type(instruction).__name__}, not a str")
        observation = f"{self.answer.observation}\n{instruction}".strip()
        self.answer = replace(self.answer, observation=observation, anchor=f"{self.answer.anchor}\n{instruction}")
        further = instructed(self.dialogue.further, instruction) if self.dialogue.further else ""
        self.dialogue = replace(self.dialogue, observation=observation, further=further)
        self.must_answer = True

    def _end_by_rule(self, outcome: str, zero: bool) -> None:
        end_by_rule(self.trajectory, outcome, zero)
        if zero:
            self.answer = replace(self.answer, success=False)

    def _record_outcome(self) -> None:
        trajectory = self.trajectory
        trajectory.metrics = dict(self.answer.metrics)
        if self.answer.references:
            trajectory.facts["references"] = self.answer.references
        if self.answer.points:
            trajectory.facts["points"] = self.answer.points
        if self.answer.evidence is not None:
            trajectory.facts["evidence"] = self.answer.evidence
        won = is_success(self.answer, trajectory.episode_return)
        trajectory.success = bool(trajectory.steps) and not trajectory.failed and won


def _fail(trajectory: Trajectory, failure: EnvFailure) -> None:
    trajectory.end_cause, trajectory.failed = str(failure), True
    if isinstance(failure.__cause__, Exception):
        trajectory.facts["traceback"] = "".join(traceback.format_exception(failure.__cause__))[-MAX_TRACEBACK:]


def end_by_rule(trajectory: Trajectory, outcome: str, zero: bool) -> None:
    """End a trajectory that a truncation rule has cut; ``zero`` sets its return to 0."""
    fact = trajectory.facts["truncation"]
    fact["outcome"] = outcome
    trajectory.end_cause = f"truncated_by_rule: {fact['rule']} after turn {fact['turn']}, {outcome}"
    trajectory.terminated, trajectory.truncated = True, False
    for step in trajectory.steps if zero else ():
        step.reward = 0.0


async def collect_episodes(
    specs: Sequence[EpisodeSpec], make_env: EnvFactory | EnvPool, engine: Engine, context: ContextPolicy,
    limits: Limits, recorder: Recorder | None = None,
) -> Rollouts:  # fmt: skip
    """Run all episodes at once; a user error is returned in ``Rollouts.input_error``.

    Args:
        make_env: creates an environment, or a pool that keeps environments between calls.
        recorder: writes samples to the pool; None: nothing is recorded.
    """
    pool = make_env if isinstance(make_env, EnvPool) else EnvPool(make_env)
    games = list(by_game(specs).values())
    try:
        with pool.watch.batch({spec.task_id for spec in specs}):
            played = [_play_pooled(game, pool, engine, context, limits, recorder) for game in games]
            found = await gathered(played)
    finally:
        if pool is not make_env:
            await pool.close()
    results: dict[EpisodeSpec, tuple[Trajectory, str] | BaseException] = {}
    for game, answer in zip(games, found, strict=True):
        if isinstance(answer, BaseException):
            results |= dict.fromkeys(game, answer)
        else:
            results |= {one.spec: (one.trajectory, _too_long(one)) for one in answer}
    return rollouts_of(specs, [results[spec] for spec in specs])


def by_game(specs: Sequence[EpisodeSpec]) -> dict[Any, list[EpisodeSpec]]:
    """Return the specs of every game that has this policy in all seats, and all others alone."""
    games: dict[Any, list[EpisodeSpec]] = {}
    for number, spec in enumerate(specs):
        alone = spec.seats == 1 or spec.opponent
        games.setdefault(number if alone else (spec.group_id - spec.seat, spec.member), []).append(spec)
    return games


def rollouts_of(specs: Sequence[EpisodeSpec], results: Sequence[tuple[Trajectory, str] | BaseException]) -> Rollouts:
    """Sort the results of the specs.

    Args:
        results: for each spec its trajectory, with an error line if its first prompt is too long (else empty), or the
            exception that it raised.

    Raises:
        BaseException: any result that is neither a trajectory nor an `EngineError` nor an `InputError`.
    """
    rollouts, too_long = Rollouts(), ""
    for spec, result in zip(specs, results, strict=True):
        if isinstance(result, tuple):
            rollouts.trajectories.append(result[0])
            too_long = too_long or result[1]
        else:
            rollouts.note(result)
            rollouts.unfinished.append(spec)
    clean = [t for t in rollouts.trajectories if not t.failed]
    if clean and not rollouts.unfinished and not any(t.steps for t in clean):
        rollouts.input_error = too_long
    return rollouts


async def _play_pooled(
    specs: Sequence[EpisodeSpec], pool: EnvPool, engine: Engine, context: ContextPolicy, limits: Limits,
    recorder: Recorder | None,
) -> list[Episode]:  # fmt: skip
    """Run an episode, or those of a game, in an environment of the pool, which is returned unless they failed."""
    spec = specs[0]
    try:
        env = await pool.take()
    except EnvFailure as failure:
        episodes = [Episode(spec, None, engine, context, limits) for spec in specs]  # type: ignore[arg-type]
        for episode in episodes:
            _fail(episode.trajectory, failure)
        return episodes
    guard = pool.guard(env, spec.task_id, spec.seed, limits.env_timeout_s)
    if spec.seats == 1:
        episodes = [Episode(spec, env, engine, context, limits, guard, recorder)]
        playing = episodes[0].play()
    else:
        game = Game(env, guard, spec.seats)
        own: list[tuple[EpisodeSpec, Any]] = [(spec, game.seats[spec.seat]) for spec in specs]
        episodes = [Episode(spec, seat, engine, context, limits, seat, recorder) for spec, seat in own]
        playing = _play_game(game, episodes)
    try:
        await playing
    except EngineError:
        pool.give_back(env)  # in mid-episode, but the next user resets it
        raise
    except BaseException:
        await pool.discard(env)
        raise
    if any(episode.trajectory.failed for episode in episodes):
        await pool.discard(env)
    else:
        pool.give_back(env)
    return episodes


async def _play_game(game: Game, episodes: Sequence[Episode]) -> Any:
    """Run the episodes of a game, with older weights in the seats that have none; raises like `Episode.play`."""
    first = episodes[0]
    try:
        await game.begin(first.spec.seed, first.spec.task_id)
    except EnvFailure as failure:
        game.stop(failure)
    others = [_older(first, seat) for seat in game.seats if seat not in {episode.env for episode in episodes}]
    for result in await asyncio.gather(*(_play_seat(e) for e in (*episodes, *others)), return_exceptions=True):
        if isinstance(result, BaseException):
            raise result


def _older(episode: Episode, seat: SeatEnv) -> Episode:
    """Return the episode of a seat that the game's older weights play, which is not recorded."""
    spec, limits = episode.spec, episode.limits
    assert spec.opponent is not None, f"game of task {spec.task_id}: no episode for seat {seat.seat}"
    engine = local_engine(spec.opponent[1], limits.max_model_len)
    own = replace(spec, seat=seat.seat, seed=step_seed(spec.seed, seat.seat + FIRST_OLDER))
    return Episode(own, seat, engine, episode.player.context, limits, seat)  # type: ignore[arg-type]


async def _play_seat(episode: Episode) -> None:
    """Run the episode of a seat once its turn comes; where the game ends before, it has no step."""
    seat: Any = episode.env
    trajectory, game = episode.trajectory, seat.game
    try:
        if await seat.turn():
            await episode.play()
        else:
            trajectory.terminated, trajectory.truncated = game.over
            trajectory.end_cause = "terminated" if trajectory.terminated else "env_truncated"
    except EnvFailure as failure:
        _fail(trajectory, failure)
    except BaseException as error:
        game.stop(error)
        raise
    game.stop(EnvFailure(trajectory.end_cause) if trajectory.failed else None)


def _too_long(episode: Episode) -> str:
    if episode.trajectory.steps or episode.trajectory.failed:
        return ""
    tokens, limit = len(episode.prompt_ids), episode.limits.max_model_len
    return f"prompt of {tokens} tokens does not fit max_model_len={limit} (task {episode.spec.task_id})"
