"""A cluster as all of its services see it: which brokers there are, and who owns which bundle."""
