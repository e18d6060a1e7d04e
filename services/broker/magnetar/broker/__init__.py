"""The broker: serves topics to Pulsar clients."""
