"""Every role in one process, and the magnetar command line."""
