"""Backlog of a topic: its size and age, its quotas, and retention of acknowledged entries."""
