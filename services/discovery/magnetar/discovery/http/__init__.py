"""HTTP: redirects to brokers, metrics and health. Loaded at the first connection to that port."""
