"""Offload of ledgers to object storage: the broker's side of offload jobs."""
