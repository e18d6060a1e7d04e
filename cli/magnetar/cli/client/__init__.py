"""`magnetar produce`, `consume` and `perf`."""
