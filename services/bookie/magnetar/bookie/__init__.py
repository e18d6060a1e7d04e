"""The bookie: stores ledgers on one disk and serves them over gRPC."""
