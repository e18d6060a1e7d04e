"""Writes of rows to topics, in batches and streams."""
