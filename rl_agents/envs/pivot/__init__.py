"""Pivot: single turns from the states of expert traces (PivotRL, section 3.1)."""
