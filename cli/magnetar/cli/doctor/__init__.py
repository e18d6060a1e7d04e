"""`magnetar doctor`: checks of a host and a cluster."""
