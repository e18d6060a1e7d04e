"""Topics: their producers and publish paths, their subscriptions and backlogs, and the registry of those loaded."""
