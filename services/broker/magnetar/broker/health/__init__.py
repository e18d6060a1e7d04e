"""The health check of a broker: a message through a topic of its own, to storage and back."""
