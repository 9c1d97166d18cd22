"""Retrieval of passages: BM25 over posting lists, or dense vectors."""
