"""`magnetar admin namespaces`."""
