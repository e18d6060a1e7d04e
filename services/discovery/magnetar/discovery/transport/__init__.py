"""Sockets: client connections, connections to brokers, and proxied connections."""
