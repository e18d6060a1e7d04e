"""`magnetar perf`: load from producers and consumers, with its figures."""
