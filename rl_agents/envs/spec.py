"""The registry's entry of an environment, and the specification of its warm-start model.

An environment is a `gymnasium.Env` whose observations and actions are strings:

- ``reset(seed=..., options={"task_id": ...}) -> (observation, info)``: the first observation is the whole task
  description, the agent's first user message.
- ``step(action) -> (observation, reward, terminated, truncated, info)``: ``action`` is the model's whole response. The
  environment parses it.

All entries of ``info`` are optional:

- ``success`` (bool), ``valid`` (bool, the action could be parsed), ``admissible_actions`` (list of str), ``metrics``
  (numbers; those of the last step are the episode's), ``turn_metrics`` (numbers of this turn).
- ``anchor``: the state key for step-level grouping; default: the observation.
- ``progress``: T3's signal, whether the step reduced the possible beliefs of the agent; None if that is not defined, as
  for a malformed action.
- ``query``: the action's question, for truncation by similarity; default: the action without its thoughts and tags.
- ``hint`` (str): what a teacher reads from now on in addition to the observations, and the policy does not.
- ``references`` (list of str): the accepted answers; PRS reads those of the last step.
- ``points`` and ``evidence`` (lists of str), for judges of long answers: required statements, and the tools' findings.
- ``new_dialogue``: the observation begins a new dialogue, and the agent no longer reads earlier turns.
- ``messages`` and ``tools``, at a reset or with ``new_dialogue``: chat messages and tool definitions in OpenAI's form
  (arguments as objects) at the beginning of the dialogue, instead of the observation.
- ``further_messages``, at a step: messages after the action instead of the observation (tool results, several
  messages), with the action's own tool calls as ``calls`` (ids and names, for templates that write a tool's name next
  to its result).
- ``seat`` (int, from 0), in a game: the player who reads the observation.

A game for several players (`EnvSpec.seats`) can be played by one policy in every seat. It is then reset with
``options={"task_id": ..., "seats": True}``: ``step`` takes the action of ``info["seat"]``, its reward is not read, and
``info["rewards"]`` has a number for each seat. Each number is added to the reward of the seat's last action. Without
``seats`` the environment plays the other seats itself, as in evaluations.

`reset`, `step` and `close` may be coroutine functions, so that many episodes wait concurrently. Plain functions are
called in threads, unless the environment declares ``inline``, see `EnvSpec.blocking`.

An environment may have a method ``render_window(task, history, observation) -> str`` (see `rl_agents.chat.template`)
and an attribute ``answer_instruction`` (str), the instruction after the last feedback that the next turn must answer.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import gymnasium

TextEnv = gymnasium.Env[str, str]
#: How an environment's calls are run, see `EnvSpec`.
Blocking = Literal["inline", "thread"]


@dataclass(frozen=True)
class EnvSpec:
    """An entry of the registry. It is data: the environment's modules are imported on demand.

    Attributes:
        name: as on the command line.
        module: a package with the modules ``env``, ``tasks`` and, for a warm-start model, ``demonstrations``; or one
            module with the same names: ``make(options, max_turns) -> TextEnv``, ``task_ids(split, options) ->
            list[str]`` (split ``train`` or ``test``) and ``STARTER`` (`StarterSpec`) or ``starter_of(options) ->
            StarterSpec``. Default: the folder of that name here.
        options: frozen data class of the environment's own keys (`rl_agents.config.options.key`), which are set by
            ``--set env.KEY=VALUE``.
        max_turns: turn limit of an episode if the run's key ``max_turns`` is 0.
        progress_window: T3's k for the environment's progress rule; 0 if it reports no ``info["progress"]``.
        agent: an episode is an agent's run, through the gateway. Its options extend
            `rl_agents.envs.options.AgentKeys`. Its module ``agents`` has ``load_agent(options) -> Agent``, and its
            module ``tasks`` also ``task_payload(task_id, options, max_turns)``, the task as the agent receives it. With
            ``base_environment(options) -> str`` there, tasks, warm-start model and limits may be those of another
            environment, with the options ``task_options``.
        blocking: how its calls are run. ``thread``: in a thread for each environment, since a call may wait;
            ``inline``: in the runner's loop, one after the other, for calls of less than some milliseconds, and for
            coroutines.
        seats: (options) -> number of players of a game that has a policy in every seat; 1: the environment plays the
            others. If this is above 1, the options have ``opponent``, which is ``self`` or ``checkpoint``.
    """

    name: str
    summary: str
    reference: str
    options: type
    max_turns: int
    module: str = ""
    gym_id: str = ""
    progress_window: int = 0
    agent: bool = False
    blocking: Blocking = "thread"
    seats: Callable[[Any], int] = lambda options: 1

    def __post_init__(self) -> None:
        camel = "".join(word.title() for word in self.name.split("_"))
        object.__setattr__(self, "module", self.module or f"rl_agents.envs.{self.name}")
        object.__setattr__(self, "gym_id", self.gym_id or f"rl_agents/{camel}-v0")

    def part(self, module: str, name: str) -> Any:
        """Return ``name`` from ``module`` of the package, or else from the package; None if it is absent."""
        home = importlib.import_module(self.module)
        if hasattr(home, "__path__") and importlib.util.find_spec(f"{self.module}.{module}"):
            home = importlib.import_module(f"{self.module}.{module}")
        return getattr(home, name, None)


@dataclass(frozen=True)
class EnvFamily:
    """Environments with names ``<prefix>:<rest>``.

    Attributes:
        name: the form of their names, such as ``gymnasium:<id>``.
        spec: name -> entry of the registry; raises `InputError` if there is no such environment.
        starter: (name, options) -> the warm-start model; raises `NoPlayer`.
    """

    name: str
    summary: str
    reference: str
    spec: Callable[[str], EnvSpec]
    starter: Callable[[str, Any], StarterSpec] | None = None


@dataclass(frozen=True)
class StarterSpec:
    """The specification of an environment's warm-start model, ``STARTER`` of its module ``demonstrations``.

    Attributes:
        build_tokenizer: () -> Hugging Face tokenizer with a chat template.
        build_model: (tokenizer, seed) -> untrained Hugging Face causal LM.
        demonstrate: (task_id, random.Random, options, max_turns) -> [(observation, action), ...], a mediocre player's
            episode; ``options`` is an object of the environment's class, ``max_turns=0`` means the environment's limit.
        training: settings of the supervised run that turns the untrained model into the warm-start model.
        defaults: settings of runs that use the warm-start model, such as ``env.prompt`` and ``max_model_len``.
        version: increases when a change makes cached warm-start models stale.
        opening: (task_id, options) -> the beginning of a task's dialogue if it is more than the observation
            (`rl_agents.chat.template.chat_text`).
        expert: as ``demonstrate``, but a player that errs as little as possible. PivotRL starts from its traces.
        variant: the environment's keys (without ``env.``) -> the warm-start model for them, if there are several models
            for different prompts. It sets those keys in its ``defaults``, so that the same keys select it again.
        takes: the time that making it takes on one core, for the line that reports it.
        summarize: (the dialogue so far, as ``demonstrate`` returns it) -> its summary, which ``sft`` imitates with
            ``context=summary(n)``; None: dialogues are imitated whole.
    """

    build_tokenizer: Callable[[], Any]
    build_model: Callable[[Any, int], Any]
    demonstrate: Callable[..., list[tuple[str, str]]]
    training: Mapping[str, Any]
    defaults: Mapping[str, Any]
    version: int = 1
    opening: Callable[..., str] | None = None
    expert: Callable[..., list[tuple[str, str]]] | None = None
    variant: Callable[[Mapping[str, Any]], StarterSpec | None] | None = None
    takes: str = "about a minute"
    summarize: Callable[[Sequence[tuple[str, str]]], str] | None = None


#: The mark in the middle of a cut observation.
CUT = "[cut: "


def cut_text(text: str, longest: int) -> str:
    """Return a text without its middle if it has more than ``longest`` characters; 0 means no limit.

    >>> cut_text("one two three four five", 10)
    'one t\n[cut: 13 characters]\n five'
    """
    if not longest or len(text) <= longest:
        return text
    tail = longest // 2
    return f"{text[: longest - tail]}\n{CUT}{len(text) - longest} characters]\n{text[len(text) - tail :]}"
