"""Small worlds in which success, values and gradients of a policy are exact; see `benchmarks.exact_worlds.__main__`."""
