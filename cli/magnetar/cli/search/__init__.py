"""Commands that look for messages: `magnetar find` and `magnetar topics tail`."""
