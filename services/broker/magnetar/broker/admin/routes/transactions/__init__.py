"""Routes of transactions: their coordinators, and their state in topics and subscriptions."""
