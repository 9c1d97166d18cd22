"""PivotRL's data: profiles of turns with the initial policy, and the choice of pivots."""
