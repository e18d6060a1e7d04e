"""Policies: what tenants, namespaces and topics say of limits, times and rates, and what holds in the end."""
