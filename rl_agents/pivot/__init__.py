"""PivotRL's data: expert traces, their turns, profiles of the initial policy, and the pivots that are left."""
