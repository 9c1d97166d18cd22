"""Sweeps: many runs of one recipe with other keys, as trials of Ray Tune."""
