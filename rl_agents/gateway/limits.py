"""What bounds a gateway's calls, and how their answers are sampled."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

#: ``keep``: the next prompt extends what the model really saw, its thoughts included, whatever the client sent back.
#: ``as_sent``: where the client dropped the thoughts, the model does not see them again either.
Reasoning = Literal["keep", "as_sent"]


@dataclass(frozen=True)
class GatewayLimits:
    """Limits of every session.

    Attributes:
        max_model_len: prompt and response tokens at most.
        max_response_tokens: sampled tokens per call at most; less where the context is nearly full or the client asks
            for less.
        temperature, top_p: of all sampling, whatever clients ask for; log-probabilities are of this distribution.
        reasoning: see `Reasoning`.
        model_name: what ``/v1/models`` lists; clients may send any other name, which is recorded.
        max_calls: answers per session; 0: no limit.
        request_timeout_s: seconds that one answer may take.
        close_wait_s: seconds for which a session that is closed waits for its calls under way.
        max_count: most answers to one request (``n``).
    """

    max_model_len: int
    max_response_tokens: int
    temperature: float = 1.0
    top_p: float = 1.0
    reasoning: Reasoning = "keep"
    model_name: str = "policy"
    max_calls: int = 0
    request_timeout_s: float = 300.0
    close_wait_s: float = 30.0
    max_count: int = 64

    def __post_init__(self) -> None:
        if self.reasoning not in ("keep", "as_sent"):
            raise ValueError(f"reasoning={self.reasoning!r}; valid: keep, as_sent")
        if self.max_response_tokens < 1 or self.max_model_len < 2:
            raise ValueError("max_response_tokens must be >= 1 and max_model_len >= 2")
