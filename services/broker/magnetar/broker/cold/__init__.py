"""Reads offloaded ledgers for clients, and releases verified ledgers from bookies."""
