"""Policies in the JSON of Pulsar's admin API."""
