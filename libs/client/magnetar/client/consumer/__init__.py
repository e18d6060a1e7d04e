"""Consumers: from delivered entries to acknowledged messages."""
