"""How a client proves who it is."""
