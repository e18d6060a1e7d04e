"""Policies: limits, times and rates set for tenants, namespaces and topics, and the values in effect."""
