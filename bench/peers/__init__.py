"""Magnetar beside NATS JetStream and Apache Kafka, with and without a sync before each acknowledgement."""
