"""The same numbers as metrics.jsonl, for TensorBoard."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any


class TensorBoardLog:
    """Writes every tagged number of a record as a scalar at the record's iteration."""

    def __init__(self, folder: Path, resumed_at: int | None = None) -> None:
        """
        Args:
            folder: the run's ``tensorboard/``.
            resumed_at: iteration that a resumed run starts from; TensorBoard forgets what came after it.
        """
        from torch.utils.tensorboard import SummaryWriter

        purge = None if resumed_at is None else resumed_at + 1
        self._writer = SummaryWriter(str(folder), purge_step=purge)  # type: ignore[no-untyped-call]

    def write(self, record: Mapping[str, Any]) -> None:
        """Add one record."""
        for tag, value in record.items():
            if "/" in tag and value is not None:
                self._writer.add_scalar(tag, value, record["iteration"])  # type: ignore[no-untyped-call]
        self._writer.flush()  # type: ignore[no-untyped-call]

    def histogram(self, tag: str, counts: Mapping[int, int], iteration: int) -> None:
        """Add whole numbers with how often each occurred, a bin per number."""
        if not counts:
            return
        low, high = min(counts), max(counts)
        bins = range(low, high + 1)
        total = sum(counts.values())
        self._writer.add_histogram_raw(  # type: ignore[no-untyped-call]
            tag, low, high, total,
            sum(value * count for value, count in counts.items()),
            sum(value * value * count for value, count in counts.items()),
            [value + 0.5 for value in bins], [counts.get(value, 0) for value in bins], iteration,
        )  # fmt: skip

    def close(self) -> None:
        """Finish the file."""
        self._writer.close()  # type: ignore[no-untyped-call]
