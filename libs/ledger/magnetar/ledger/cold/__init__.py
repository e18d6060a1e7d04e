"""Ledgers that were offloaded: how their objects are laid out, written, read and swept."""
