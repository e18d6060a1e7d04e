"""`magnetar admin`: commands for operators."""
