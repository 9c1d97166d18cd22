"""What follows what in plain dialogues whose steps come in any order."""

from collections.abc import Sequence

import numpy as np


def after(trajectories: Sequence[int], steps: Sequence[int]) -> np.ndarray:
    """The entry of the next step of the same trajectory, -1 at its end."""
    entry = {
        key: n for n, key in enumerate(zip(np.array(trajectories).tolist(), np.array(steps).tolist(), strict=True))
    }
    return np.array([entry.get((trajectory, step + 1), -1) for trajectory, step in entry], dtype=int)


def before(trajectories: Sequence[int], steps: Sequence[int]) -> np.ndarray:
    """The entry of the step before in the same trajectory, -1 at its beginning."""
    found = np.full(len(trajectories), -1)
    for entry, following in enumerate(after(trajectories, steps)):
        if following >= 0:
            found[following] = entry
    return found
