"""Dispatch decisions as pure functions and values: the consumer of the next entries, or why there is none."""
