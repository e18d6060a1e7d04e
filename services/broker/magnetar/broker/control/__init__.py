"""This broker among other brokers: what it is called for, what it calls others for, and whether it leads."""
