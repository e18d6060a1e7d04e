"""The Pulsar wire protocol without I/O: bytes in, commands out, and back."""
