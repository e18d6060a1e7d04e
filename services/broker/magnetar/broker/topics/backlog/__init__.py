"""Backlog of a topic: its size and age, quotas on it, and retention of what is acknowledged."""
