"""The discovery service: answers topic lookups and forwards clients to brokers."""
