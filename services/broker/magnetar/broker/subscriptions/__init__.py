"""Subscriptions: consumers, what each of them holds unacknowledged, and what is delivered again."""
