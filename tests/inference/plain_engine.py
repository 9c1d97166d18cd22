"""Another engine, whole: a transformers model without a cache, one request at a time. Tests train through it."""

import asyncio
from collections.abc import Sequence

import torch

from rl_agents.inference.base import Completion, EngineSettings, OnTokens, RequestRefused, Sampling, Weights
from rl_agents.inference.engines import EngineKind, register_engine
from rl_agents.inference.torch_model import load_causal_lm


class PlainEngine:
    def __init__(self, settings: EngineSettings) -> None:
        self.model = load_causal_lm(settings.model_dir, settings.dtype).eval()
        self.longest, self.version = settings.max_model_len, 0
        self.turn = asyncio.Lock()  # requests, and new weights between two of them

    async def generate(
        self, prompt_ids: Sequence[int], sampling: Sampling, on_tokens: OnTokens | None = None
    ) -> Completion:
        budget = min(sampling.max_tokens, self.longest - len(prompt_ids))
        if sampling.extras is not None or sampling.top_p < 1 or budget < 1:
            raise RequestRefused("the plain engine does not support that")
        generator = torch.Generator()
        if sampling.seed is not None:
            generator.manual_seed(sampling.seed % 2**63)
        ids, logprobs, stopped = list(prompt_ids), list[float](), False
        async with self.turn:
            while len(logprobs) < budget and not stopped:
                token, logprob = self.sample(ids, sampling.temperature, generator)
                ids.append(token)
                logprobs.append(logprob)
                heard = on_tokens is not None and on_tokens([token], [logprob])
                stopped = bool(heard) or token in sampling.stop_token_ids
                await asyncio.sleep(0)
            return Completion(ids[len(prompt_ids) :], logprobs, self.version, "stop" if stopped else "length")

    @torch.inference_mode()
    def sample(self, ids: list[int], temperature: float, generator: torch.Generator) -> tuple[int, float]:
        logprobs = torch.log_softmax(self.model(torch.tensor([ids])).logits[0, -1].float() / (temperature or 1), -1)
        token = logprobs.argmax() if temperature == 0 else torch.multinomial(logprobs.exp(), 1, generator=generator)
        return int(token), float(logprobs[token])

    async def load_weights(self, weights: Weights, version: int) -> None:
        async with self.turn:
            self.model.load_state_dict(weights, strict=False)  # a tied head comes once
            self.version = version

    def close(self) -> None:
        del self.model


register_engine(EngineKind("plain", "for tests", "-", f"{__name__}:PlainEngine", borrows=True))
