"""`magnetar debug`: collects the state of a cluster for a question about it."""
