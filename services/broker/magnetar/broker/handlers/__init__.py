"""One function a command: what the broker does when a client sends it."""
