"""Benchmarks of a running broker, by raw frames from a process of their own; see docs/benchmarks.md."""
