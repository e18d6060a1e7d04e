"""Publishing: producers of a topic, limits and deduplication of their messages, and receipts or refusals."""
