"""Deterministic simulation: virtual time, a simulated disk, a simulated metadata store."""
