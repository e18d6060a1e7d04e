"""Ledgers on their way to a colder tier: what brokers do for the jobs that take them there."""
