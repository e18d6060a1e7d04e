"""The `magnetar` command."""
