"""The health check of a broker: publishes a message to its own heartbeat topic and reads it back."""
