"""`magnetar admin topics`."""
