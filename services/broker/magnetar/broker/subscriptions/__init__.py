"""Subscriptions: which consumers are connected, what each type promises them, and what they acknowledged."""
