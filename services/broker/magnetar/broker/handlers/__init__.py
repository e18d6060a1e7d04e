"""Handlers: one function for each command that clients send."""
