"""What offload jobs and Spark ask of brokers (gRPC)."""
