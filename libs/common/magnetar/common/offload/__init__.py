"""The gRPC calls of offload jobs and Spark to brokers."""
