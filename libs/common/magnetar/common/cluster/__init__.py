"""The cluster as every service sees it: its brokers, its bundles and their owners."""
