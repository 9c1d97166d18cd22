"""Finding passages: BM25 over posting lists, dense vectors, and rankings fused from both."""
