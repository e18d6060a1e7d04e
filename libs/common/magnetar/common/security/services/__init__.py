"""Mutual TLS between our own services: identities, renewed credentials, permitted callers."""
