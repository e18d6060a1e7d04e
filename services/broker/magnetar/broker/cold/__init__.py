"""Offloaded ledgers in a broker: read back for clients, and let go by bookies once they are verified."""
