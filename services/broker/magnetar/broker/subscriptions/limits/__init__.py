"""Limits on dispatch: rates, and unacknowledged messages of the whole broker."""
