"""Support of model families; see `benchmarks.model_families.__main__`."""
