"""HTTP: redirects to brokers, metrics and health. Loaded when somebody connects to that port."""
