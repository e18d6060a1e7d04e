"""`magnetar admin bookies`."""
