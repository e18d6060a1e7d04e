"""The segment log: one append-only, group-committed log of segment files (storage contract, section 1)."""
