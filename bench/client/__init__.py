"""The asyncio client beside PyPI's pulsar-client, on the same broker in the same run."""
