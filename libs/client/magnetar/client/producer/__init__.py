"""Producers: from a message to an entry that is stored."""
