"""Configuration: typed settings, load order, and the keys that Apache Pulsar knows."""
