"""Topics: producers, publishing, and the subscriptions of one topic."""
