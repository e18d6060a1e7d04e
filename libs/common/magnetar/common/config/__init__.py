"""Configuration: typed settings, load order, and the keys of Apache Pulsar."""
