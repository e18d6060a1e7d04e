"""The consumers of a subscription and the entries that each of them has not acknowledged."""
