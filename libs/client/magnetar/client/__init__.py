"""A small client of the Pulsar protocol."""
