"""`magnetar admin`: commands of operators."""
