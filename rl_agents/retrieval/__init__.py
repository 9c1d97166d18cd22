"""Retrieval of passages: BM25 over posting lists."""
