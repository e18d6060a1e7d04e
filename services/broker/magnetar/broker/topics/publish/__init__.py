"""Publishing: producers of a topic, limits and deduplication of what they send, and receipts or refusals."""
