"""Parameters of a request, validated when they are read."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from rl_agents.viewer.runs import Catalog, Run
from rl_agents.web.errors import bad_request


@dataclass(frozen=True)
class Params:
    """The parameters of a request to a view.

    Attributes:
        catalog: all runs.
        values: as text.
    """

    catalog: Catalog
    values: Mapping[str, str]

    @property
    def run(self) -> Run:
        """The requested run; raises `ApiError` (404)."""
        return self.catalog.run(self.text("run"))

    def text(self, name: str, default: str | None = None) -> str:
        """Return a parameter; raises `ApiError` (400) if it is missing and has no default."""
        found = self.values.get(name, default)
        if found is None:
            raise bad_request(f"parameter '{name}' is missing", name, "missing_parameter")
        return found

    def whole(self, name: str, default: int | None = None) -> int:
        text = self.text(name, None if default is None else str(default))
        try:
            found = int(text)
        except ValueError:
            raise bad_request(f"parameter '{name}': '{text[:40]}' is not a whole number", name) from None
        if not -(2**63) <= found < 2**63:
            raise bad_request(f"parameter '{name}' is out of range", name)
        return found

    def number(self, name: str) -> float | None:
        text = self.text(name, "")
        if not text:
            return None
        try:
            found = float(text)
        except ValueError:
            found = math.nan
        if not math.isfinite(found):
            raise bad_request(f"parameter '{name}': '{text[:40]}' is not a number", name)
        return found
