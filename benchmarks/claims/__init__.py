"""Claims of five papers, tested with paired runs; see `benchmarks.claims.__main__`."""
