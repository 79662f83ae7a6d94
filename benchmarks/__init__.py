"""Benchmarks: figures of ours as ratios to a peer's, both measured in one interleaved run."""
