"""The speed of ledger storage: the local segment log, and bookies with the quorum client; see
docs/storage-benchmarks.md."""
