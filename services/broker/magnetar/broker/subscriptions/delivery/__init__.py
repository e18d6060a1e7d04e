"""What a delivery is, and how it sends entries to consumers."""
