"""What the registry knows about an environment, and how an environment teaches a warm-start model.

An environment is a `gymnasium.Env` whose observations and actions are strings:

- ``reset(seed=..., options={"task_id": ...}) -> (observation, info)``: the first observation is the
  whole task description that the agent reads as its first user message.
- ``step(action) -> (observation, reward, terminated, truncated, info)``: ``action`` is the model's whole
  response; the environment parses it.

``info`` may carry ``success`` (bool), ``valid`` (the action could be parsed), ``admissible_actions``
(list of str), ``anchor`` (the state's name for step-level grouping; default: the observation),
``metrics`` (numbers reported when the episode ends), ``progress`` (T3: whether the step narrowed down what the agent
can believe; None where that cannot be said, as for a malformed action), ``query`` (the question that the action put,
for truncation by similarity; default: the action without its thoughts and tags), ``references`` (list of str, the
accepted answers; PRS reads those of the last step), ``points`` and ``evidence`` (lists of str, for judges of long
answers: what the answer has to state, and what the tools have found so far), ``new_dialogue`` (the observation begins
a new dialogue: the agent reads nothing of what was said before) and, of a reset or beside ``new_dialogue``,
``messages`` with ``tools``: chat messages and tool definitions in OpenAI's form (arguments as objects) that the
dialogue begins with instead of the observation. A step may carry ``further_messages``: what follows the action in
place of the observation as one user message (tool results, several messages), with the action's own tool calls as
``calls`` (their ids and names, for templates that write the tool's name next to its result).

`reset`, `step` and `close` may be coroutine functions: then many episodes wait at the same time. Plain functions that
wait or compute for long are called in threads or processes, see `EnvSpec.blocking`.

An environment may have a method ``render_window(task, history, observation) -> str`` (see
`rl_agents.chat.template`) and an attribute ``answer_instruction`` (str): how it tells the agent, after its last
feedback, that the next turn must answer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import gymnasium

TextEnv = gymnasium.Env[str, str]
#: Where an environment's calls are made, see `EnvSpec`.
Blocking = Literal["auto", "inline", "thread", "process"]


@dataclass(frozen=True)
class EnvSpec:
    """An entry of the registry. It is data: what plays is imported when it is asked for.

    Attributes:
        name: as on the command line.
        module: a package with the modules ``env``, ``tasks`` and, where it can teach a warm-start model,
            ``demonstrations``; or one module with the same names: ``make(options, max_turns) -> TextEnv``,
            ``task_ids(split, options) -> list[str]`` (split ``train`` or ``test``) and ``STARTER`` (`StarterSpec`). By
            default the folder of the name here.
        options: frozen data class of the environment's own keys (`rl_agents.config.options.key`), which are set by
            ``--set env.KEY=VALUE``.
        max_turns: turn limit of an episode where the run's key ``max_turns`` is 0.
        progress_window: T3's k for the environment's progress rule; 0 when it reports no ``info["progress"]``.
        borrows: its options may name another environment, whose tasks, warm-start model and limits it takes; its module
            ``tasks`` says which: ``base_environment(options) -> str``.
        blocking: where its calls are made. ``inline``: in the runner's loop, one after the other, for those of less
            than some milliseconds, and for coroutines; ``thread``: for those that wait; ``process``: for those that
            compute, draw from global random generators, change the working directory or need signals; ``auto``:
            nothing is declared, which is inline.
    """

    name: str
    summary: str
    reference: str
    options: type
    max_turns: int
    module: str = ""
    gym_id: str = ""
    progress_window: int = 0
    borrows: bool = False
    blocking: Blocking = "auto"

    def __post_init__(self) -> None:
        camel = "".join(word.title() for word in self.name.split("_"))
        object.__setattr__(self, "module", self.module or f"rl_agents.envs.{self.name}")
        object.__setattr__(self, "gym_id", self.gym_id or f"rl_agents/{camel}-v0")


@dataclass(frozen=True)
class StarterSpec:
    """How an environment makes its warm-start model; its module ``demonstrations`` calls it ``STARTER``.

    Attributes:
        build_tokenizer: () -> Hugging Face tokenizer with a chat template.
        build_model: (tokenizer, seed) -> untrained Hugging Face causal LM.
        demonstrate: (task_id, random.Random, options, max_turns) -> [(observation, action), ...], a mediocre player's
            episode; ``options`` is an object of the environment's class, ``max_turns=0`` takes the environment's.
        training: settings of the supervised run that turns the untrained model into the warm-start model.
        defaults: settings of runs that use the warm-start model, such as ``env.prompt`` and ``max_model_len``.
        version: counts up when a change makes cached warm-start models stale.
        opening: (task_id, options) -> what a task's dialogue begins with where that is more than its observation
            (`rl_agents.chat.template.chat_text`).
        expert: as ``demonstrate``, but a player that errs as little as it can: its traces are what PivotRL starts from.
        variant: the environment's keys (without ``env.``) -> the warm-start model for them, where there are several:
            models that read different prompts. It sets those keys in its ``defaults``, so that it is chosen again where
            they hold.
        takes: how long making it takes on one core, for the line that reports it.
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


#: What a cut observation has in its middle.
CUT = "[cut: "


def cut_text(text: str, longest: int) -> str:
    """Return a text with its middle cut out where it has more than ``longest`` characters; 0: whole.

    >>> cut_text("one two three four five", 10)
    'one t\n[cut: 13 characters]\n five'
    """
    if not longest or len(text) <= longest:
        return text
    tail = longest // 2
    return f"{text[: longest - tail]}\n{CUT}{len(text) - longest} characters]\n{text[len(text) - tail :]}"
