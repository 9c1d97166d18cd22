"""The five papers' claims, judged by paired runs: ``python -m benchmarks.claims`` writes docs/research/claims.md."""
