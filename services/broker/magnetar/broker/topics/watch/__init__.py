"""Watches of topic lists: which topics of a namespace match a pattern, and telling clients of changes."""
