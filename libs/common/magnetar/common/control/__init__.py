"""The control plane: what brokers say to each other and discovery to brokers, over gRPC."""
