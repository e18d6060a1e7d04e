"""Dispatch decisions as pure functions and values: who gets the next entries, and why nobody does."""
