"""What learning from another policy's samples goes without, where somebody chose so: one line each."""

from __future__ import annotations

from rl_agents.algorithms.base import AlgorithmSpec
from rl_agents.config import Settings
from rl_agents.inference.model_shape import ModelShape
from rl_agents.trainer.unused_keys import stale_correction

#: Age in versions up to which truncated importance weights kept up with all others (`benchmarks.staleness`).
MOST_TRUNCATED_AGE = 4


#: Parameters from which a model counts as pretrained, and from which it stands lower learning rates.
PRETRAINED, LARGE = 100_000_000, 1_000_000_000
#: Learning rates beyond which weights of a pretrained model do not hold, below and from `LARGE` on; adapters take more.
MAX_LR, MAX_LARGE_LR, MAX_LORA_LR = 5e-5, 1e-5, 1e-3
#: Learning rates of pretrained models where nobody chose one; that of all other models is the key's default.
USUAL_LR, USUAL_LARGE_LR, USUAL_LORA_LR = 2e-5, 1e-6, 1e-4


def usual_rates(settings: Settings, shape: ModelShape | None) -> dict[str, float]:
    """Return the learning rates of a pretrained model where nobody chose any; empty for small models."""
    if shape is None or shape.parameters < PRETRAINED:
        return {}
    full = USUAL_LARGE_LR if shape.parameters >= LARGE else USUAL_LR
    return {"lr": USUAL_LORA_LR if settings.lora_rank else full, "critic_lr": 10 * full}


def rate_caution(settings: Settings, shape: ModelShape | None) -> str:
    """Say that a learning rate is beyond what pretrained weights stand; empty where it is not."""
    if shape is None or shape.parameters < PRETRAINED:
        return ""
    most = MAX_LORA_LR if settings.lora_rank else MAX_LARGE_LR if shape.parameters >= LARGE else MAX_LR
    if settings.lr <= most:
        return ""
    return (
        f"lr={settings.lr:g} is beyond {most:g}, which pretrained weights of {shape.parameters / 1e6:.0f} M parameters "
        "do not stand: the policy collapses to few answers"
    )


def pool_cautions(settings: Settings, recipe: AlgorithmSpec) -> list[str]:
    """Return what recorded sessions are learned from without, where somebody chose so, one line each."""
    if not settings.pool or recipe.credit is None or settings.mismatch != "none":
        return []
    if settings.old_logprobs == "learner":
        return ["pool with mismatch=none: what other weights sampled is learned from as if the learner had"]
    return [
        "pool with old_logprobs=engine: clip ranges lie around the policy that sampled, and tokens that the learner "
        "has moved out of them teach nothing; old_logprobs=learner mismatch=token_tis corrects instead"
    ]


def stale_cautions(settings: Settings, recipe: AlgorithmSpec) -> list[str]:
    """Return what learning from older weights' rollouts goes without, where somebody chose so, one line each."""
    if not (settings.lag or settings.stream) or recipe.credit is None:
        return []
    found = (
        []
        if settings.save_pool
        else [
            "save_pool=false: what is sampled ahead of its iteration is sampled again, with newer weights, when the "
            "run is resumed"
        ]
    )
    age = settings.staleness if settings.stream else settings.lag
    mode = f"stream with staleness={age}" if settings.stream else f"lag={age}"
    if settings.mismatch.endswith("tis") and age > MOST_TRUNCATED_AGE:
        found.append(
            f"{mode} with mismatch={settings.mismatch}: beyond {MOST_TRUNCATED_AGE}, truncated weights lost what was "
            "learned (docs/algorithms/README.md); old_logprobs=engine mismatch=none, whose clip brakes, lost least"
        )
    if settings.mismatch != "none" or (settings.old_logprobs == "engine" and age > MOST_TRUNCATED_AGE):
        return found
    instead = f"mismatch={stale_correction(settings, recipe)}"
    if settings.old_logprobs == "learner":
        return [
            *found,
            f"{mode} with mismatch=none: what older weights sampled is learned from as if it were new; {instead}",
        ]
    return [
        *found,
        f"{mode} with old_logprobs=engine: ratios are against the weights that sampled, which uses up clip ranges "
        f"before the first optimizer step; old_logprobs=learner {instead} corrects instead",
    ]


def quantized_cautions(settings: Settings, recipe: AlgorithmSpec) -> list[str]:
    """Return what learning from a quantized engine's samples goes without, where somebody chose so, one line each."""
    if settings.engine_quantization == "none" or recipe.credit is None or settings.mismatch != "none":
        return []
    return [
        f"engine_quantization={settings.engine_quantization} with mismatch=none: the engine samples from coarser "
        "weights than the learner has (actor/engine_logprob_gap_mean), and what it samples is learned "
        f"from as if the learner had; old_logprobs=learner mismatch={stale_correction(settings, recipe)} corrects"
    ]
