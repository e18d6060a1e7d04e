"""Statistics of topics and subscriptions in the JSON of Pulsar's admin API."""
