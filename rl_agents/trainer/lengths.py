"""Measure response and context lengths on the environment's prompts, for models other than the warm-start model.

Before a run, scripted dialogues are tokenized as for the model. A dialogue of n turns needs base + turns_read * R
tokens with responses of length R: ``base`` are the environment's tokens, ``turns_read`` is the maximum number of
responses in the context (all with ``context=append``, n + 1 with a window that repeats them, 1 with one that does not).
Both are measured: the environment's demonstrator runs some tasks, and prompts of windows are tokenized twice, once with
long thoughts in earlier actions.
"""

from __future__ import annotations

import contextlib
import math
import random
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, zip_longest
from typing import Any, cast

from rl_agents.chat.template import SUMMARY_REQUEST, ContextPolicy, Dialogue, summary_message
from rl_agents.config import Settings, context_window, summary_limit
from rl_agents.envs.base import TextEnv, env_spec, read_env_options, starter_spec, task_ids
from rl_agents.errors import InputError, NoTasks
from rl_agents.inference.base import Engine
from rl_agents.interrupts import event_loop
from rl_agents.rollout.env_calls import EnvFailure, read_reset, read_step
from rl_agents.rollout.env_pool import EnvPool, env_pool
from rl_agents.rollout.env_worker import EnvGuard
from rl_agents.rollout.turns import Limits, Player, next_dialogue

#: Number of tasks whose first prompts are read, number of those that are run, and the time limit.
TASKS, PLAYED_TASKS, BUDGET_S = 48, 12, 20.0
#: Number of tasks that are also run with invalid actions, and their turns.
GARBLED_TASKS, GARBLED_TURNS = 3, 3
#: Maximum turns of random actions, and the formats of actions to try.
EXPLORED_TURNS, FORMS = 12, ("{}", "<think></think>\n<action>{}</action>")
#: Timeout of a call of the environment in seconds, unless ``env_timeout_s`` is less.
TIMEOUT_S = 20.0
#: Factors for tasks that were not run: for a whole dialogue, whose lengths average out, and for a window's prompt.
HEADROOM, WINDOW_HEADROOM = 1.15, 1.5
#: Assumed tokens of an observation if no demonstrator can act.
UNSEEN_OBSERVATION = 512
#: An action that no environment asks for.
MADE_UP = "hm"
#: Words of a thought in the second tokenization.
THOUGHT = 256
#: A limit above all prompts.
UNLIMITED = 10**9


@dataclass(frozen=True)
class Dialogues:
    """Measured lengths of an environment's dialogues.

    Attributes:
        tasks: number of measured tasks.
        turns: maximum turns of an episode.
        shortest, longest: tokens of first prompts.
        base: tokens of a whole dialogue's last prompt without responses, including headroom.
        turns_read: number of responses in the context, including the one being written.
        shown: whether tasks were run; otherwise observations are assumed to be as long as the first prompt, and at
            least `UNSEEN_OBSERVATION`.
        made_up: they were run with `MADE_UP`, which the environment takes.
        tried: the same for the calls that an agent made in episodes that were tried and that it ended itself.
    """

    tasks: int
    turns: int
    shortest: int
    longest: int
    base: int
    turns_read: float
    shown: bool
    made_up: bool = False
    tried: Dialogues | None = None

    def need(self, response: int) -> int:
        """Return the tokens of a whole dialogue with responses of ``response`` tokens."""
        return math.ceil(self.base + self.turns_read * response)

    def response_in(self, length: int) -> int:
        """Return the longest response with which a whole dialogue fits into ``length``; not positive if none does."""
        return math.floor((length - self.base) / self.turns_read)


def measure_dialogues(settings: Settings, context: ContextPolicy, played: bool = True) -> Dialogues:
    """Measure the prompts of some tasks of an environment.

    Args:
        settings: with ``max_turns`` and the environment's options filled in.
        played: let the demonstrator act; otherwise only first prompts are measured.

    Raises:
        EnvFailure: the environment raised, hung or returned invalid values in every task.
        InputError: a user error in the environment, or the chat template cannot write its prompts.
    """
    timeout_s = min(TIMEOUT_S, settings.env_timeout_s or TIMEOUT_S)
    limits = Limits(UNLIMITED, UNLIMITED, UNLIMITED, env_timeout_s=timeout_s)
    player = Player(cast(Engine, None), context, limits)  # nothing is sampled here
    # Suppress the warning about prompts longer than the tokenizer's limit, which are measured here.
    warned = getattr(context.template.tokenizer, "deprecation_warnings", {})
    warned["sequence-length-is-longer-than-the-specified-maximum"] = True
    pool = env_pool(settings)
    with event_loop() as loop:
        read, garbled = loop.run(_readings(settings, player, pool, played))
    turns = settings.max_turns + (settings.prompting == "reflexion")
    asked = len(context.template.between(SUMMARY_REQUEST + summary_message(Dialogue.start("").summarized(""))))
    found = _summary(settings, turns, read, garbled, asked)
    calls = max((len(reading.sizes) for reading in garbled), default=0)
    tried = env_spec(settings.env).agent and 1 < calls < turns
    return replace(found, tried=_summary(settings, calls, read, garbled, asked)) if tried else found


async def _readings(
    settings: Settings, player: Player, pool: EnvPool, played: bool
) -> tuple[list[_Reading], list[_Reading]]:
    """Measure tasks until the time limit: with useful and with invalid actions."""
    grows, started = context_window(settings.context) is None, time.monotonic()
    agent = env_spec(settings.env).agent
    read: list[_Reading] = []
    garbled: list[_Reading] = []
    failure, timeout_s = None, player.limits.env_timeout_s
    env = await pool.take()
    try:
        for number, task in enumerate(_sample(settings)):
            ways: list[Choose] = [lambda turn, observation, info: None]
            if played and number < PLAYED_TASKS:
                ways = [_demonstrated(settings, task), _explored(settings, task, env)]
                ways += [] if agent else [_garbled(GARBLED_TURNS)]
            try:
                guard = pool.guard(env, task, 0, timeout_s)
                read.append(await _read(player, env, guard, ways, grows))
                if played and number < (PLAYED_TASKS if agent else GARBLED_TASKS):
                    garbled.append(await _play(player, env, guard, _garbled(None if agent else GARBLED_TURNS), grows))
            except EnvFailure as error:  # the run handles a failing task
                failure = error
            if time.monotonic() - started > BUDGET_S:
                break
    finally:
        await pool.discard(env)
    if failure and not read:
        raise failure
    return read, garbled


#: Chooses actions: turn, observation and ``info`` -> the action; None ends the episode.
Choose = Callable[[int, str, Mapping[str, Any]], str | None]


@dataclass(frozen=True)
class _Reading:
    """The prompts of a task, turn by turn.

    Attributes:
        sizes: tokens without the responses that a growing dialogue keeps.
        repeated: maximum number of responses that a window's prompt repeats.
        valid: share of valid actions.
        made_up: its actions were `MADE_UP`.
    """

    sizes: list[int]
    repeated: float = 0.0
    valid: float = 0.0
    made_up: bool = False


async def _read(player: Player, env: TextEnv, guard: EnvGuard, ways: Sequence[Choose], grows: bool) -> _Reading:
    """Measure a task with the first of ``ways`` whose actions are mostly valid; the third one makes them up."""
    reading = _Reading([])
    for choose in ways:
        reading = await _play(player, env, guard, choose, grows)
        if reading.valid > 0.5:
            return replace(reading, made_up=choose in ways[2:])
    return replace(reading, sizes=reading.sizes[:1], repeated=0.0)


async def _play(player: Player, env: TextEnv, guard: EnvGuard, choose: Choose, grows: bool) -> _Reading:
    """Run a task and measure every prompt; a window's prompt also with long thoughts."""
    reply: Any = await guard.call(env.reset, seed=0, options={"task_id": guard.task_id})
    answer = read_reset(reply, player.limits.max_observation_characters, env)
    dialogue = thoughtful = Dialogue.start(answer.observation, answer.chat)
    prompt = await player.prompt(env, guard, dialogue)
    sizes, said, repeated, understood, turns = [len(prompt)], 0, 0.0, 0, 0
    thought = f"<think>{' a' * THOUGHT}</think>"
    thought_ids = len(player.context.template.answer_ids(thought)) - 1
    while (action := choose(turns, answer.observation, reply[-1])) is not None:
        step = player.step_by_hand(prompt, action, answer)
        reply = await guard.call(env.step, action)
        answer = read_step(reply, player.limits.max_observation_characters, env)
        turns, understood = turns + 1, understood + answer.valid
        if answer.terminated or answer.truncated or answer.new_dialogue:
            break
        dialogue = next_dialogue(dialogue, step, answer)
        prompt = await player.prompt(env, guard, dialogue)
        said += len(step.response_ids) if grows else 0
        sizes.append(len(prompt) - said)
        if not grows:
            thoughtful = next_dialogue(thoughtful, replace(step, action=thought + action), answer)
            repeated = max(repeated, (len(await player.prompt(env, guard, thoughtful)) - len(prompt)) / thought_ids)
    return _Reading(sizes, repeated, understood / max(1, turns))


def _demonstrated(settings: Settings, task: str) -> Choose:
    actions: list[str] = []
    with contextlib.suppress(Exception):  # some demonstrators support only the warm-start model's tasks
        options = read_env_options(env_spec(settings.env), settings.env_options)
        rng = random.Random(f"lengths/{task}")
        starter = starter_spec(settings.env, settings.env_options)
        turns = starter.demonstrate(task, rng, options, settings.max_turns)
        actions = [action for _, action in turns]
    return lambda turn, observation, info: actions[turn] if turn < len(actions) else None


def _explored(settings: Settings, task: str, env: Any) -> Choose:
    """Choose random actions if the environment draws or lists them, in a format that it accepts."""
    rng, form, draw = random.Random(f"lengths/{task}"), 0, getattr(env, "random_action", lambda rng: None)

    def choose(turn: int, observation: str, info: Mapping[str, Any]) -> str | None:
        nonlocal form
        listed = info.get("admissible_actions") if (drawn := draw(rng)) is None else [drawn]
        if not isinstance(listed, Sequence) or not listed or turn >= min(settings.max_turns, EXPLORED_TURNS):
            return None
        form = (form + 1) % len(FORMS) if turn and info.get("valid") is False else form
        # A placeholder, such as search[<your query>], gets words of the observation.
        words = " ".join(re.findall(r"[a-z]{3,}", observation.lower())[-40:])
        return FORMS[form].format(re.sub(r"<[^>]*>", words, str(rng.choice(listed))))

    return choose


def _garbled(turns: int | None) -> Choose:
    """Choose `MADE_UP`, to an agent's end if None: messages of errors may be longer than ordinary observations."""
    return lambda turn, observation, info: MADE_UP if turns is None or turn < turns else None


def _summary(
    settings: Settings, turns: int, read: Sequence[_Reading], garbled: Sequence[_Reading], asked: int
) -> Dialogues:
    firsts = [reading.sizes[0] for reading in read]
    window = context_window(settings.context)
    further = turns - 1 if window is None else min(turns - 1, window)
    seen = [*read, *garbled] if env_spec(settings.env).agent else read
    shown = any(len(reading.sizes) > 1 for reading in seen)
    played = [reading.sizes for reading in [*read, *garbled] if len(reading.sizes) > 1]
    observation = max(*firsts, UNSEEN_OBSERVATION)
    if not shown:
        base, repeated = float(max(firsts) + further * observation), float(further)
    elif window is None:
        pace = max((sizes[-1] - sizes[0]) / (len(sizes) - 1) for sizes in played)
        observation = max(after - before for sizes in played for before, after in pairwise(sizes))
        base, repeated = max(firsts) + max(further - 1, 0) * pace + observation, float(further)
    else:
        base, repeated = float(max(map(max, played))), max(reading.repeated for reading in read)
    beyond = summary_limit(settings.context)
    if beyond is not None:  # n tokens, or task, summary and observation; then a response and the next summary
        base = max(beyond, max(firsts) + observation) + asked + 2 * settings.max_summary_tokens
        repeated = 0.0 if settings.max_summary_tokens else 2.0
    return Dialogues(
        tasks=len(read),
        turns=turns,
        shortest=min(firsts),
        longest=max(firsts),
        base=math.ceil(base * (HEADROOM if window is None else WINDOW_HEADROOM)),
        turns_read=1 + round(repeated, 1),
        shown=shown or not further,
        made_up=[reading.made_up for reading in read if len(reading.sizes) > 1][:1] == [True],
    )


def _sample(settings: Settings) -> list[str]:
    """Return tasks spread over both task sets, alternating, so that any beginning of the list is a sample.

    Raises:
        NoTasks: of a split that the run needs.
    """
    both, needed = [], ["train", "test"] if settings.eval_episodes else ["train"]
    needed = [settings.only_split] if settings.only_split else needed
    for split in ("train", "test"):
        with contextlib.suppress(*[] if split in needed else [NoTasks]):
            tasks = task_ids(settings.env, split, settings.env_options)
            spread = tasks[:: max(1, 2 * len(tasks) // TASKS)][: TASKS // 2]
            both.append(random.Random(0).sample(spread, len(spread)))
    return [task for pair in zip_longest(*both) for task in pair if task is not None]


KEYS = ("max_response_tokens", "max_model_len")
#: Default response length, as in public recipes, and the factor for models that think.
RESPONSE, THINKING = 512, 4
#: Minimum response length: shorter ones would cut an instructed model's responses, so the run is rejected. It is the
#: default without a GPU: a core samples about 100 tokens a second from 0.1 billion parameters.
SHORTEST_RESPONSE = 128
#: Context lengths are multiples of this.
ROUND = 64


def fill_lengths(
    settings: Settings, context: ContextPolicy, chosen: set[str], limit: int | None, built_for: str = ""
) -> None:
    """Set the lengths that were not set, and explain them in ``settings.lengths``.

    Args:
        settings: resolved, except for the lengths.
        context: builds this model's prompts.
        chosen: keys that were set, or that the model was made for.
        limit: maximum context length of the model in tokens; None if unknown.
        built_for: that the model was built for another environment, which explains lengths that do not fit.

    Raises `InputError`: no length can work, or the set one is too short for a first prompt.
    """
    open_keys = [name for name in KEYS if name not in chosen]
    try:
        found = measure_dialogues(settings, context, played=bool(open_keys))
    except EnvFailure as failure:
        if not open_keys:
            return  # the run reports it with the share of episodes
        kind, _, problem = str(failure).partition(": ")
        unmeasured = f"; {' and '.join(open_keys)} cannot be measured, set them" if kind == "env_timeout" else ""
        raise InputError(f"{settings.env} fails in every task that was tried: {problem}{unmeasured}") from None
    if "max_turns" not in settings.explicit and found.response_in(limit or UNLIMITED) < SHORTEST_RESPONSE:
        found = found.tried or found
    if open_keys:
        _choose(settings, found, open_keys, limit, _usual_response(context), built_for)
    if found.shortest + 1 > settings.max_model_len:
        raise InputError(
            f"max_model_len={settings.max_model_len}: the first prompt of {settings.env} has {found.shortest} tokens "
            f"and more ({found.tasks} tasks tried); it must be above {found.longest + settings.max_response_tokens}"
        )
    settings.lengths = f"{built_for}{'; ' * bool(built_for)}{_said(settings, found, open_keys, limit)}"


def _choose(
    settings: Settings, found: Dialogues, open_keys: list[str], limit: int | None, usual: int, built_for: str
) -> None:
    """Set the keys that are open. Raises `InputError`: an episode does not fit into the model's context."""
    most = limit or UNLIMITED
    if "max_model_len" not in open_keys:
        fitting = found.response_in(settings.max_model_len)
        room = settings.max_model_len - found.longest
        settings.max_response_tokens = max(1, min(usual, max(fitting, SHORTEST_RESPONSE), room))
        return
    if "max_response_tokens" in open_keys:
        settings.max_response_tokens = min(usual, found.response_in(most))
        if settings.max_response_tokens < SHORTEST_RESPONSE and (found.made_up or not found.shown):
            settings.max_response_tokens = max(1, min(usual, most - found.longest))
        elif settings.max_response_tokens < SHORTEST_RESPONSE and env_spec(settings.env).agent:
            settings.max_response_tokens = max(1, settings.max_response_tokens)
        elif settings.max_response_tokens < SHORTEST_RESPONSE:
            raise InputError(
                (built_for and f"{built_for}; set these, or env to that environment")
                or f"model={settings.model} reads {most} tokens; {found.turns} turns of {settings.env} take about "
                f"{found.need(SHORTEST_RESPONSE)} even with responses of {SHORTEST_RESPONSE}: set context=window(2), "
                "a lower max_turns, or both max_response_tokens and max_model_len"
            )
    settings.max_model_len = min(math.ceil(found.need(settings.max_response_tokens) / ROUND) * ROUND, most)


def _usual_response(context: ContextPolicy) -> int:
    import torch

    usual = RESPONSE if torch.cuda.is_available() else SHORTEST_RESPONSE
    return THINKING * usual if "<think>" in str(context.template.tokenizer.chat_template) else usual


def _said(settings: Settings, found: Dialogues, open_keys: Sequence[str], limit: int | None) -> str:
    """Return a sentence about the lengths, the measurements, and episodes that will be cut."""
    values = ", ".join(f"{name}={getattr(settings, name)}" for name in open_keys or KEYS)
    need = found.need(settings.max_response_tokens)
    text = (
        f"{values} {'measured' if open_keys else 'checked'} on {found.tasks} tasks of {settings.env}: first prompts "
        f"of {found.shortest} to {found.longest} tokens"
    )
    if not open_keys:
        return text
    turns = f"{found.turns} turn{'s' if found.turns > 1 else ''}"
    text += f", {need} for {turns}"
    if not found.shown or found.made_up:
        unseen = f"observations taken as {max(found.longest, UNSEEN_OBSERVATION)} tokens each, as no player acts here"
        text += f" ({f'observations after {MADE_UP!r}' if found.shown else unseen}; set max_model_len for others)"
    agent = env_spec(settings.env).agent
    if agent and found.turns < settings.max_turns:
        text += f", the calls of agents that were tried (set max_turns={found.turns} if yours never make more)"
    text += f"; the model reads {limit}" if limit else ""
    if settings.max_response_tokens == SHORTEST_RESPONSE and "max_response_tokens" in open_keys:
        text += "; short responses, as there is no GPU: set max_response_tokens for longer ones"
    if need > settings.max_model_len:
        text += (
            "; set max_turns to the most calls of an episode" if agent else "; longer episodes are cut by the context"
        )
    return text
