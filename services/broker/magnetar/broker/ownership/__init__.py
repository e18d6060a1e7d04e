"""Which topics this broker serves, and where the others are served."""
