"""What finished trajectories say about states: counts per state, scores and success rates from them."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from rl_agents.credit.statistics import FloatArray
from rl_agents.credit.three_spo import StateScore, state_score
from rl_agents.search.chain import StateChain
from rl_agents.settings import Settings

#: alpha of eq. 1 by preset. At 50 the allocation is ternary (0, 1 or G_max) from depth 2 on.
PRESETS: Mapping[str, float] = {"paper": 50.0, "graded": 1.0}
#: Visits that the prior of a success rate is worth.
PRIOR_VISITS = 1.0
KEY_BYTES = 12


def _collapsed(text: str) -> str:
    return " ".join(text.split())


#: What makes near-equal observations one state.
NORMALISERS: Mapping[str, Callable[[str], str]] = {
    "none": lambda text: text,
    "whitespace": _collapsed,
    "digits": lambda text: re.sub(r"\d+", "#", _collapsed(text)),
}


def digest(*parts: str) -> str:
    """A short name for texts: 96 bits, the same on every machine."""
    return hashlib.blake2b("\0".join(parts).encode(), digest_size=KEY_BYTES).hexdigest()


class StateStatistics:
    """Counts (N_total, N_succ) per state (3SPO, section 3.2), kept over the whole run.

    A key is a digest of the state's text (and of the task with ``state_scope=task``). Beyond ``max_states`` those
    least recently counted are forgotten: they are unseen again. With ``state_decay`` d < 1 a count of k iterations
    ago weighs d^k, so that scores follow the policy and closed states open again.

    With ``state_value=chain`` all of them come from the steps that were sampled, and not from the trajectories that
    the search finished: N_total is the number of steps sampled at the state, and p its value in `chain`.

    Attributes:
        chain: None with ``state_value=counts``.
        finished: trajectories counted so far; the global clock is one more.
        solved: solved ones among them.
        iteration: iterations so far, for the decay.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.alpha = settings.score_alpha or PRESETS[settings.score_preset]
        self.finished = self.solved = self.iteration = 0
        #: key -> (total, successes, iteration of the last count), least recently counted first.
        self._counts: dict[str, tuple[float, float, int]] = {}
        chained = settings.state_value == "chain"
        self.chain = StateChain(settings.gamma, settings.max_states) if chained else None

    def __len__(self) -> int:
        """States known."""
        return len(self._counts if self.chain is None else self.chain)

    def key(self, task_id: str, text: str, depth: int = 1) -> str:
        """Return the key of a state at a depth, which is part of its name with ``state_depth``."""
        scope = task_id if self.settings.state_scope == "task" else ""
        place = str(depth) if self.settings.state_depth else ""
        return digest(scope, place, NORMALISERS[self.settings.state_normaliser](text))

    def count(self, key: str) -> tuple[float, float]:
        """Return (N_total, N_succ); (0, 0) for an unseen state."""
        if self.chain is not None:
            steps = self.chain.steps(key)
            return steps, steps * float(self.chain.values([key])[0])
        total, successes, last = self._counts.get(key, (0.0, 0.0, self.iteration))
        fade = self.settings.state_decay ** (self.iteration - last)
        return total * fade, successes * fade

    def score(self, keys: Sequence[str], depths: Sequence[int] | int) -> StateScore:
        """S and gate of states (eq. 1), float64.

        Args:
            keys: [states].
            depths: [states], 1 for a start state; not read under the global clock.
        """
        total, successes = self._arrays(keys)
        clock = depths if self.settings.score_clock == "depth" else 1 + self.finished
        return state_score(
            total, successes, clock, alpha=self.alpha, xi=self.settings.score_xi, zeta=self.settings.score_zeta
        )

    def open_score(self, keys: Sequence[str], depths: Sequence[int] | int) -> FloatArray:
        """S without its gate: a state that keeps failing stays near 1 and does not look like a mastered one."""
        total, successes = self._arrays(keys)
        clock = depths if self.settings.score_clock == "depth" else 1 + self.finished
        return state_score(total, successes, clock, alpha=self.alpha, xi=np.inf).score

    def success_rate(self, keys: Sequence[str], prior: float) -> FloatArray:
        """(N_succ + k*prior)/(N_total + k) with k = `PRIOR_VISITS`: an unseen state is as good as its prior."""
        if self.chain is not None:
            return self.chain.values(keys, prior)
        total, successes = self._arrays(keys)
        rate: FloatArray = (successes + PRIOR_VISITS * prior) / (total + PRIOR_VISITS)
        return rate

    def overall_rate(self) -> float:
        """Share of solved trajectories; one half before there are any."""
        return (self.solved + 0.5) / (self.finished + 1)

    def finish(self, path: Sequence[str], success: bool, weights: Sequence[float] | None = None) -> None:
        """Count a finished trajectory: each distinct state once, or every visit.

        Args:
            path: keys from the start state to the last one that counts.
            success: of the trajectory.
            weights: how much it counts at each state; default 1.
        """
        self.finished += 1
        self.solved += success
        if self.chain is not None:
            return
        visits = list(zip(path, weights or [1.0] * len(path), strict=True))
        if self.settings.state_count == "trajectory":
            visits = list({key: (key, weight) for key, weight in reversed(visits)}.values())[::-1]  # the first visit
        for key, weight in visits:
            total, successes = self.count(key)
            self._counts.pop(key, None)  # behind all others, as the most recent
            self._counts[key] = (total + weight, successes + weight * success, self.iteration)
        while len(self._counts) > self.settings.max_states:
            del self._counts[next(iter(self._counts))]

    def end_iteration(self) -> None:
        """Let counts fade, with ``state_decay``."""
        self.iteration += 1
        if self.chain is not None:
            self.chain.fade(self.settings.state_decay)

    def _arrays(self, keys: Sequence[str]) -> tuple[FloatArray, FloatArray]:
        counts = np.array([self.count(key) for key in keys], dtype=np.float64).reshape(len(keys), 2)
        return counts[:, 0], counts[:, 1]

    # --- checkpoints -------------------------------------------------------------------------------------------

    def to_json(self) -> dict[str, Any]:
        """Plain data; `load_json` is its inverse."""
        columns = list(zip(*self._counts.values(), strict=True)) or [(), (), ()]
        return {
            "finished": self.finished,
            "solved": self.solved,
            "iteration": self.iteration,
            "keys": list(self._counts),
            "chain": None if self.chain is None else self.chain.to_json(),
            **dict(zip(("total", "successes", "last"), map(list, columns), strict=True)),
        }

    def load_json(self, data: Mapping[str, Any]) -> None:
        """Replace everything by what `to_json` returned."""
        self.finished, self.solved = int(data["finished"]), int(data["solved"])
        self.iteration = int(data["iteration"])
        if self.chain is not None:
            self.chain.load_json(data["chain"])
        rows = zip(data["total"], data["successes"], data["last"], strict=True)
        self._counts = {
            str(key): (float(total), float(successes), int(last))
            for key, (total, successes, last) in zip(data["keys"], rows, strict=True)
        }
