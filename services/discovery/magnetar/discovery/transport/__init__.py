"""Sockets: clients' connections, connections to brokers, and clients' connections to brokers."""
