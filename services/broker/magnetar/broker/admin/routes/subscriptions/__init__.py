"""Routes of subscriptions and their backlogs."""
