"""PRS: progressive reward shaping. A later reward component counts only once the earlier ones are earned.

Unlike a weighted sum, an answer's quality earns nothing while the rollout does not parse, so that the policy learns
format, then tool use, then correctness.
"""

from __future__ import annotations

import math
import string
from collections import Counter
from collections.abc import Sequence

ARTICLES = frozenset(("a", "an", "the"))


def process_reward(calls_parsed: Sequence[bool], answer_parsed: bool, *, require_tool_call: bool = False) -> float:
    """R_process = 1 all calls and the answer parse;  0 all calls parse, the answer does not;  -1 otherwise.

    Args:
        calls_parsed: one entry per tool call: it parsed and satisfied the tool's schema. None at all is vacuously fine.
        answer_parsed: a non-empty final answer was found.
        require_tool_call: without any call return -1.
    """
    if not all(calls_parsed) or (require_tool_call and not calls_parsed):
        return -1.0
    return 1.0 if answer_parsed else 0.0


def format_reward(tags_complete: bool, bonus: float = 0.1) -> float:
    """R_format = 0.1 if all required tag pairs are complete, else 0."""
    return bonus if tags_complete else 0.0


def short_form_reward(process: float, formatting: float, answer: float) -> float:
    """R = R_process + R_format, and + R_a once R_process >= 1; in [-1, 2.1].

    Args:
        process: R_process in {-1, 0, 1}.
        formatting: R_format in {0, 0.1}.
        answer: R_a in [0, 1], short-form BLEU.
    """
    return process + formatting + (answer if process >= 1.0 else 0.0)


def judge_needed(process: float) -> bool:
    """Whether the long form needs the judge at all; calling it earlier costs and changes nothing."""
    return process >= 1.0


def long_form_reward(process: float, formatting: float, judge: float, answer: float) -> float:
    """R = R_process + R_format, then + R_judge once R_process >= 1, then + R_a once R_judge >= 1; in [-1, 3.1].

    Args:
        judge: R_judge in {0, 1}: factual, without hallucination; ignored while R_process < 1.
        process, formatting, answer: as in `short_form_reward`.
    """
    reward = process + formatting
    if not judge_needed(process):
        return reward
    return reward + judge + (answer if judge >= 1.0 else 0.0)


def progressive_reward(components: Sequence[float], thresholds: Sequence[float]) -> float:
    """R = R₁ + 1{R₁ >= ε₁}·σ(R₂) + 1{R₁ >= ε₁, R₂ >= ε₂}·σ(R₃) + ... (PRS, eq. 15), σ the logistic function.

    The general form; the question-answering forms above add raw values instead. Thresholds test raw components.
    Reaching a stage always adds something, σ(0) = ½.

    Args:
        components: R₁, R₂, ..., at least one.
        thresholds: ε₁, ε₂, ..., one fewer than the components.

    Raises:
        ValueError: the two lengths do not fit.
    """
    if len(components) != len(thresholds) + 1:
        raise ValueError(f"{len(components)} components need {len(components) - 1} thresholds, got {len(thresholds)}")
    reward = components[0]
    for previous, threshold, component in zip(components, thresholds, components[1:], strict=False):
        if previous < threshold:
            break
        reward += _logistic(component)
    return reward


def _logistic(x: float) -> float:
    """1/(1 + e^{-x}) without overflow."""
    return 1.0 / (1.0 + math.exp(-x)) if x >= 0 else math.exp(x) / (1.0 + math.exp(x))


def normalize_answer(text: str) -> list[str]:
    """Words of an answer: lower case, punctuation and English articles removed, split at whitespace."""
    letters = text.lower().translate(str.maketrans("", "", string.punctuation))
    return [word for word in letters.split() if word not in ARTICLES]


def short_form_bleu(prediction: str, references: str | Sequence[str]) -> float:
    """BLEU for answers of a few words: BP·exp(1/N·Σ_n ln p_n), N = min(4, c), the best over the references.

    BLEU-4 would be 0 for every answer under four words; here the order adapts to the length c of the prediction.
    p_n is the clipped n-gram precision, BP = 1 if c > r, else exp(1 - r/c).

    Args:
        prediction: the answer, normalized by `normalize_answer`.
        references: one accepted answer or several.

    Returns:
        A number in [0, 1]; 0 for an empty prediction and where an order has no overlap: no smoothing, as in the text.
    """
    answers = [references] if isinstance(references, str) else references
    words = normalize_answer(prediction)
    return max((_bleu(words, normalize_answer(answer)) for answer in answers), default=0.0)


def _bleu(candidate: list[str], reference: list[str]) -> float:
    if not candidate or not reference:
        return 0.0
    orders = min(4, len(candidate))
    total = 0.0
    for n in range(1, orders + 1):
        found, expected = _ngrams(candidate, n), _ngrams(reference, n)
        overlap = sum((found & expected).values())
        if overlap == 0:
            return 0.0
        total += math.log(overlap / sum(found.values()))
    brevity = min(0.0, 1.0 - len(reference) / len(candidate))
    return math.exp(brevity + total / orders)


def _ngrams(words: list[str], n: int) -> Counter[tuple[str, ...]]:
    return Counter(tuple(words[i : i + n]) for i in range(len(words) - n + 1))
