"""Connections to brokers."""
