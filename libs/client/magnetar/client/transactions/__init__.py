"""Transactions: messages and acknowledgements that take effect together."""
