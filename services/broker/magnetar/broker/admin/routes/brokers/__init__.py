"""Routes of brokers."""
