"""The Pulsar wire protocol without I/O: bytes to commands and commands to bytes."""
