"""`magnetar offload` and `magnetar spark`: jobs that magnetar-spark runs."""
