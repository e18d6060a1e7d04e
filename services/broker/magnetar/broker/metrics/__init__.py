"""The Prometheus page of topics, subscriptions and the broker."""
