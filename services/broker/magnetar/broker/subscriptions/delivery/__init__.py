"""Deliveries, and how they send entries to consumers."""
