"""Which model families work, and with what: see `benchmarks.model_families.__main__`."""
