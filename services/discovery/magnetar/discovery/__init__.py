"""The discovery service: where topics are served, and a way there."""
