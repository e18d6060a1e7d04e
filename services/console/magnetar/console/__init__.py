"""The console: pages about topics, subscriptions and messages, for a browser."""
