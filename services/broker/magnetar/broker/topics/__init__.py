"""Topics: producers and publish paths, subscriptions, backlogs, and the registry of loaded topics."""
