"""Reconciliation of restored metadata with the entries that bookies hold."""
