"""Schemas of topics: their versions in metadata, and the rules by which a new one is taken or refused."""
