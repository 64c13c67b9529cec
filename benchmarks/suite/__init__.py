"""The benchmarks, one in each module: see `benchmarks.registry`."""
