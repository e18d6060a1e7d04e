"""TLS of ports and of outgoing connections: settings, contexts, reload, handshakes."""
