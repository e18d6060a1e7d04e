"""Reconciliation of restored metadata: compares it with bookies' entries, and repairs it."""
