"""Keys that several environments have; what one alone has is declared in its ``__init__.py``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, TypeVar

from rl_agents.config.options import key, keys_of
from rl_agents.errors import InputError
from rl_agents.rewards.judge import OpenAIJudge


@dataclass(frozen=True)
class PromptKey:
    """The two styles of an environment that has a starter model."""

    prompt: Literal["paper", "compact"] = key("paper", "the paper's words, or few words, for small models")


@dataclass(frozen=True)
class ThoughtsKey:
    """How an environment of the PRS paper asks for thoughts."""

    thoughts: Literal["think", "reasoning"] = key(
        "think",
        "tag that the prompt asks to think in; reasoning is the PRS paper's (appendix A)",
        needs="prompt=paper",
    )


@dataclass(frozen=True)
class RetrieverKeys:
    """How a search finds passages (`rl_agents.retrieval.retriever`)."""

    retriever: Literal["bm25", "dense", "hybrid"] = key("bm25", "by words, by vectors, or both fused by their ranks")
    retriever_model: str = key("", "folder of a sentence-transformers model", needs="retriever=dense|hybrid")
    query_prefix: str = key(
        "", "what that model wants before queries (E5 gets its own)", needs="retriever=dense|hybrid"
    )
    passage_prefix: str = key("", "what it wants before passages (E5 gets its own)", needs="retriever=dense|hybrid")

    def __post_init__(self) -> None:
        if self.retriever != "bm25" and not self.retriever_model:
            needed = "env.retriever_model=DIR, the folder of a sentence-transformers model"
            raise InputError(f"env.retriever={self.retriever} needs {needed}")


@dataclass(frozen=True)
class JudgeKeys:
    """Who judges: words, or a model behind an OpenAI-compatible server (`rl_agents.rewards.judge.OpenAIJudge`)."""

    #: Further attempts after a timeout, a lost connection, HTTP 429 or 5xx.
    judge_retries: ClassVar[int] = 2

    judge: str = key("rule", "rule: words, which needs nothing; openai: a model behind a server; or a plugin's")
    judge_url: str = key("", "of the server, up to and including /v1", needs="judge!=rule")
    judge_model: str = key("", "its name on the server", needs="judge!=rule")
    judge_key_env: str = key("", "environment variable with the server's key; empty for none", needs="judge!=rule")
    judge_timeout_s: float = key(30.0, "seconds that one request may take", gt=0, needs="judge!=rule")
    judge_concurrency: int = key(16, "requests of one env runner at the same time", ge=1, le=4096, needs="judge!=rule")


Served = TypeVar("Served", bound=OpenAIJudge)


def connect_judge(kind: type[Served], keys: JudgeKeys) -> Served:
    """Build the judge behind a server that the options ``env.judge_*`` describe.

    Raises:
        InputError: no URL or no model; see `ModelServer.connect`.
    """
    for name in ("judge_url", "judge_model"):
        if not getattr(keys, name):
            raise InputError(f"env.judge=openai needs env.{name}")
    return kind.from_keys(keys)


Part = TypeVar("Part")


def part_of(cls: type[Part], options: object) -> Part:
    """Return the keys of ``cls`` that a larger options object holds."""
    return cls(**{name: getattr(options, name) for name in keys_of(cls)})


@dataclass(frozen=True)
class ColumnKeys:
    """How the columns of a table are called (`rl_agents.data.tables`)."""

    columns: dict[str, str] = key(
        {}, "what is read -> column of the data, such as question:prompt,answer:extra_info.answer"
    )


@dataclass(frozen=True)
class QuestionFileKeys(ColumnKeys):
    """What a table of questions may hold."""

    max_bad_share: float = key(
        0.01, "largest share of unusable questions in a file: they are reported and skipped", ge=0, le=1
    )
