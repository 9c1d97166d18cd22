"""Older weights of a run, which play the other seats of its games (``env.opponent=checkpoint``)."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from functools import cached_property
from pathlib import Path

from rl_agents.config import Settings

#: Their folder in a checkpoint.
OPPONENTS = "opponents"


class OlderPolicies:
    """The weights after every n-th iteration, n = ``env.opponent_interval``, as Hugging Face folders.

    Iteration i plays against the newest that had at most i - k iterations, k = ``async_level``, so that timing has no
    influence; until there are any, against the initial model, iteration 0.
    """

    def __init__(self, settings: Settings, initial: str) -> None:
        options = settings.env_options
        self.interval = options["opponent_interval"] if options.get("opponent") == "checkpoint" else 0
        self._lag, self._initial = settings.async_level, initial

    @cached_property
    def _home(self) -> tempfile.TemporaryDirectory[str]:
        return tempfile.TemporaryDirectory(prefix="rl_agents-opponents-")

    def _kept(self) -> dict[int, Path]:
        return {int(path.name): path for path in Path(self._home.name).iterdir()} if self.interval else {}

    def at(self, iteration: int) -> tuple[int, str] | None:
        """Return (iterations, folder) of the weights that ``iteration`` plays against; None: they are not needed."""
        kept = self._kept()
        number = max((n for n in kept if n <= iteration - self._lag), default=0)
        return (number, str(kept.get(number, self._initial))) if self.interval else None

    def keep(self, iteration: int, save: Callable[[Path], None]) -> None:
        """Keep the weights after ``iteration`` completed ones if they are due; drop what no later one plays against."""
        if self.interval and iteration % self.interval == 0:
            save(Path(self._home.name) / str(iteration))
            needed, _ = self.at(iteration) or (0, "")
            for number, path in self._kept().items():
                if number < needed:
                    shutil.rmtree(path)

    def save(self, checkpoint: Path) -> None:
        if self.interval:
            shutil.copytree(self._home.name, checkpoint / OPPONENTS)

    def load(self, checkpoint: Path | None) -> None:
        """Replace them by those of a checkpoint, or by none."""
        for path in self._kept().values():
            shutil.rmtree(path)
        if self.interval and checkpoint is not None and (checkpoint / OPPONENTS).is_dir():
            shutil.copytree(checkpoint / OPPONENTS, self._home.name, dirs_exist_ok=True)
