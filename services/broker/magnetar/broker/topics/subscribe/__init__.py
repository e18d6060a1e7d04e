"""Subscriptions of a topic: creating and deleting them, connecting consumers, and limits on both."""
