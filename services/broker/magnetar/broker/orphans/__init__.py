"""Finds, lists and deletes orphans: metadata that nothing references any more."""
