"""Cost of security: TLS of Magnetar and Apache Pulsar beside plain text, and authorization decisions."""
