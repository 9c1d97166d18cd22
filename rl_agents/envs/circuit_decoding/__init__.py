"""CircuitDecoding: identify hidden Boolean circuits among candidates (T3, appendix C.1)."""
