"""The control plane: gRPC calls between brokers and from discovery to brokers."""
