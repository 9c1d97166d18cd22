"""Keys of several environments. A key of one environment is declared in its ``__init__.py``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal, TypeVar

from rl_agents.config.options import key, keys_of, off, on


@dataclass(frozen=True)
class PlayerKey:
    """The player of environments whose code is elsewhere (`rl_agents.envs.gymnasium_adapter.named_player`)."""

    player: str = key("", "player that the warm-start model imitates: <module>:<function>(observation, random)")


@dataclass(frozen=True)
class OlderOpponentKey:
    """Key of games against older weights of the run."""

    opponent_interval: int = key(
        10, "iterations after which the present weights replace the older ones", ge=1, needs=on(opponent="checkpoint")
    )


@dataclass(frozen=True)
class GameKeys(OlderOpponentKey):
    """Keys of games that can have a policy in every seat."""

    opponent: Literal["self", "checkpoint", "environment"] = key(
        "self", "the other players in training: the policy itself, its older weights, or the environment's own"
    )


def shared_game(options: Any) -> bool:
    """Return whether a policy has every seat of a game."""
    return options.opponent in ("self", "checkpoint")


@dataclass(frozen=True)
class PromptKey:
    """The two prompt styles of an environment that has a warm-start model."""

    prompt: Literal["paper", "compact"] = key("paper", "prompt style: the paper's, or few words for small models")


@dataclass(frozen=True)
class ThoughtsKey:
    """The tag for thoughts in prompts of the PRS paper's environments."""

    thoughts: Literal["think", "reasoning"] = key(
        "think",
        "tag for thoughts in the prompt; the PRS paper uses reasoning (appendix A)",
        needs=on(prompt="paper"),
    )


@dataclass(frozen=True)
class JudgeKeys:
    """The judge: words, or a model behind an OpenAI-compatible server (`rl_agents.rewards.judges.OpenAIJudge`)."""

    #: Further attempts after a timeout, a lost connection, HTTP 429 or 5xx.
    judge_retries: ClassVar[int] = 2

    judge: str = key("rule", "judge: rule compares words, openai asks a model on a server, or a plugin's name")
    judge_url: str = key("", "URL of the judge's server, up to and including /v1", needs=off(judge="rule"))
    judge_model: str = key("", "name of the judge model on its server", needs=off(judge="rule"))
    judge_key_env: str = key(
        "", "environment variable with the server's API key; empty for none", needs=off(judge="rule")
    )
    judge_timeout_s: float = key(30.0, "time limit of one request, in seconds", gt=0, needs=off(judge="rule"))
    judge_concurrency: int = key(16, "concurrent requests of one env runner", ge=1, le=4096, needs=off(judge="rule"))


Part = TypeVar("Part")


def part_of(cls: type[Part], options: object) -> Part:
    """Return the keys of ``cls`` that a larger options object holds."""
    return cls(**{name: getattr(options, name) for name in keys_of(cls)})


@dataclass(frozen=True)
class AgentKeys:
    """Keys of environments whose episodes are runs of an agent (`EnvSpec.agent`)."""

    agent_timeout_s: float = key(300.0, "time limit of an agent for one task, in seconds", gt=0)
    agent_concurrency: int = key(16, "concurrent agents of one env runner", ge=1)
    error_reward: float | None = key(
        None,
        "reward of an episode whose agent failed; empty excludes such episodes from training and counts them",
    )
    reasoning: Literal["keep", "as_sent"] = key(
        "keep", "thoughts of earlier turns in the prompt: as the model wrote them, or as the agent sends them back"
    )


@dataclass(frozen=True)
class ColumnKeys:
    """The names of a table's columns (`rl_agents.data.tables`)."""

    columns: dict[str, str] = key({}, "field -> column of the data, such as question:prompt,answer:extra_info.answer")


@dataclass(frozen=True)
class QuestionFileKeys(ColumnKeys):
    """Keys of a table of questions."""

    max_bad_share: float = key(
        0.01, "largest share of unusable questions in a file; they are reported and skipped", ge=0, le=1
    )
