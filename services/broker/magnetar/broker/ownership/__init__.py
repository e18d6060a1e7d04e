"""Bundle ownership: which topics this broker serves, and which brokers serve the others."""
