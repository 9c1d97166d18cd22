"""``python run.py play``: run an environment without a model and print observations, actions and rewards."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import random
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rl_agents.algorithms import Settings
from rl_agents.cli.parser import Parser
from rl_agents.config import merge_flags
from rl_agents.config.loading import refuse_keys
from rl_agents.data.tasks import stream_seed
from rl_agents.envs.base import TextEnv, base_environment, env_spec, read_env_options, starter_spec, task_ids
from rl_agents.envs.spec import StarterSpec
from rl_agents.errors import InputError, NoPlayer, nearest
from rl_agents.rollout.env_calls import EnvFailure, EnvReply, read_reset, read_step
from rl_agents.rollout.env_pool import EnvPool, env_pool
from rl_agents.rollout.env_worker import EnvGuard
from rl_agents.rollout.turns import end_cause, is_success

POLICIES = ("random", "scripted", "human")
#: Keys that playing uses, besides those of the environment.
USED = ("env", "model", "plugins", "prompting", "max_turns", "max_observation_characters", "env_blocking",
        "env_start_timeout_s", "env_timeout_s")  # fmt: skip
#: Demonstrated episodes whose actions the random policy samples.
DRAWN_FROM = 20
#: Words of a random action if the format of actions is unknown.
WORDS = 4

#: (reply, the environment's ``info``) -> action; None to stop.
Act = Callable[[EnvReply, Mapping[str, Any]], str | None]


def build_parser() -> Parser:
    parser = Parser("play")
    parser.add_argument("--env", metavar="NAME", default="guess_numbers", help="environment (default: guess_numbers)")
    parser.add_argument(
        "--policy", metavar="NAME", default="scripted",
        help="`scripted` (default): the environment's expert, else its demonstrator; `random`: an admissible action, "
        "else a demonstrated one, else words of the observation; `human`: you type the actions",
    )  # fmt: skip
    parser.add_argument("--task", metavar="ID", help="task (default: the first tasks of the split)")
    parser.add_argument("--split", choices=("train", "test"), default="train", help="task set (default: train)")
    parser.add_count("--episodes", 1, "number of episodes")
    parser.add_seed()
    parser.add_settings_flag({"env": "--env", "seed": "--seed", "eval_episodes": "--episodes"})
    return parser


def run(argv: Sequence[str]) -> int:
    """Run the episodes; return 1 if all of them failed in the environment."""
    args = build_parser().parse(argv)
    if args.policy not in POLICIES:
        raise InputError(f"--policy {args.policy}: {nearest(args.policy, POLICIES)}")
    settings, starter = play_settings(args)
    tasks = [args.task] if args.task else task_ids(settings.env, args.split, settings.env_options)
    policy = Policy(settings, starter, args.policy, tasks)
    keys = " ".join(f"env.{name}={value}" for name, value in settings.env_options.items())
    outcomes: list[Outcome] = []
    envs = env_pool(settings)
    # Not `asyncio.run`, which would delay Ctrl-C while waiting for a person's action.
    with contextlib.closing(asyncio.new_event_loop()) as loop:
        env = loop.run_until_complete(made(envs, settings.env))
        try:
            print(f"{settings.env}, policy {args.policy}: {policy.means()}\n{keys or 'env keys: all defaults'}")
            for number in range(args.episodes):
                if outcomes and outcomes[-1].failed:
                    loop.run_until_complete(envs.discard(env))
                    env = loop.run_until_complete(made(envs, settings.env))
                task, seed = tasks[number % len(tasks)], stream_seed(args.seed, number)
                act, guard = policy.start(env, task, seed), envs.guard(env, task, seed, settings.env_timeout_s)
                outcomes.append(loop.run_until_complete(play(env, guard, act, settings)))
        finally:
            loop.run_until_complete(envs.discard(env))
    failed = sum(outcome.failed for outcome in outcomes)
    mean = sum(outcome.total for outcome in outcomes) / len(outcomes)
    solved = sum(outcome.success for outcome in outcomes)
    print(f"\n{len(outcomes)} episodes: {solved} solved, mean return {mean:g}, {failed} failed")
    return 1 if failed == len(outcomes) else 0


def play_settings(args: argparse.Namespace) -> tuple[Settings, StarterSpec | None]:
    """Return settings with the environment keys of its warm-start model, overridden by ``--set``.

    Raises:
        InputError: unknown environment or key, or a key without effect.
    """
    settings, spec = Settings.from_dict(merge_flags(args.set, {"env": args.env})), env_spec(args.env)
    idle = sorted(name for name in settings.explicit if name not in USED and not name.startswith("env."))
    refuse_keys(vars(settings), idle, f"play samples no model and trains none; it uses env.KEY, {', '.join(USED[2:])}")
    try:
        starter: StarterSpec | None = starter_spec(args.env, settings.env_options)
    except NoPlayer:
        starter = None
    defaults = {} if starter is None or settings.model != "starter" else starter.defaults
    settings.set_defaults({name: value for name, value in defaults.items() if name.startswith("env.")})
    settings.max_turns = settings.max_turns or env_spec(base_environment(args.env, settings.env_options)).max_turns
    read_env_options(spec, settings.env_options)
    return settings, starter


@dataclass
class Outcome:
    """The result of an episode."""

    total: float
    success: bool
    failed: bool


async def made(envs: EnvPool, name: str) -> TextEnv:
    """Return an environment, made in the same way and with the same time limit as in training.

    Raises:
        InputError: making it fails.
    """
    try:
        return await envs.take()
    except EnvFailure as failure:
        raise InputError(f"environment {name} fails: {failure}") from None


async def play(env: TextEnv, guard: EnvGuard, act: Act, settings: Settings) -> Outcome:
    """Run and print one episode, with the same guards as in training."""
    task, seed = guard.task_id, guard.generators.seed
    print(f"\n=== task {task}, seed {seed}")
    total, turns, cause, answer = 0.0, 0, "", EnvReply("")
    try:
        raw: Any = await guard.call(env.reset, seed=seed, options={"task_id": task})
        answer = read_reset(raw, settings.max_observation_characters, env)
        while not cause:
            _show(f"--- turn {turns + 1}, environment:", answer.observation)
            action = act(answer, raw[-1])
            if action is None:
                cause = "stopped: no further action"
                break
            _show("agent:", action)
            raw = await guard.call(env.step, action)
            answer = read_step(raw, settings.max_observation_characters, env)
            total, turns = total + answer.reward, turns + 1
            print(f"reward {answer.reward:g}{'' if answer.valid else ', not a valid action'}")
            cause = end_cause(answer, turns, settings.max_turns)
    except EnvFailure as failure:
        print(f"=== failed: {failure}")
        return Outcome(total, False, True)
    if turns:
        _show("--- final observation:", answer.observation)
    success = is_success(answer, total) and not cause.startswith("stopped")
    metrics = "".join(f", {name} {value:g}" for name, value in answer.metrics.items())
    print(f"=== {cause}: return {total:g}, {'solved' if success else 'not solved'}, {turns} turns{metrics}")
    return Outcome(total, success, False)


class Policy:
    """A policy without a model: scripted, random or human."""

    def __init__(self, settings: Settings, starter: StarterSpec | None, name: str, tasks: Sequence[str]) -> None:
        self.settings, self.starter, self.name, self.tasks = settings, starter, name, tasks
        self.options = read_env_options(env_spec(settings.env), settings.env_options)
        self._known: list[str] = []
        if name == "scripted" and starter is None:
            raise InputError(f"environment {settings.env} has no scripted player; use --policy random or human")

    def means(self) -> str:
        """Describe the policy in this environment."""
        if self.name == "human":
            return "type one line per turn; an empty line stops"
        if self.name == "scripted":
            assert self.starter is not None
            return "the environment's expert" if self.starter.expert else "the environment's imperfect demonstrator"
        other = "a demonstrated action of these tasks" if self.starter else "words of the observation"
        return f"a random admissible action where the environment lists them, else {other}"

    def start(self, env: TextEnv, task: str, seed: int) -> Act:
        rng = random.Random(seed)
        if self.name == "human":
            return _ask
        if self.name == "scripted":
            actions = self._demonstrated(task, rng)
            return lambda answer, info: next(actions, None)
        return lambda answer, info: self._drawn(env, answer, info, rng)

    def _demonstrated(self, task: str, rng: random.Random) -> Iterator[str]:
        assert self.starter is not None
        player = self.starter.expert or self.starter.demonstrate
        return iter([action for _, action in player(task, rng, self.options, self.settings.max_turns)])

    def _drawn(self, env: TextEnv, answer: EnvReply, info: Mapping[str, Any], rng: random.Random) -> str:
        if draw := getattr(env, "random_action", None):
            number: str | None = draw(rng)
            if number is not None:
                return number
        if admissible := [str(action) for action in info.get("admissible_actions") or ()]:
            return rng.choice(admissible)
        if self.starter is not None and not self._known:
            tasks = [rng.choice(self.tasks) for _ in range(DRAWN_FROM)]
            self._known = [action for task in tasks for action in self._demonstrated(task, rng)]
        words = answer.observation.split() or ["?"]
        return rng.choice(self._known) if self._known else " ".join(rng.choice(words) for _ in range(WORDS))


def _ask(answer: EnvReply, info: Mapping[str, Any]) -> str | None:
    if admissible := info.get("admissible_actions"):
        print(f"admissible: {', '.join(map(str, admissible))}")
    try:
        return input("your action> ") or None
    except EOFError:
        return None


def _show(title: str, text: str) -> None:
    print(f"{title}\n{textwrap.indent(text.strip() or '(empty)', '    ', lambda line: True)}")
