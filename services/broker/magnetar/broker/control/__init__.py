"""Calls between brokers: bundle assignment, handover, load reports and remote topics."""
