"""Entries of ledgers, read from bookies or through a broker."""
