"""Compaction of a broker's topics: runs on request and by threshold, a bounded number at a time."""
