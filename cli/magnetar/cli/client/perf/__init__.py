"""`magnetar perf`: measures publish and consume throughput and latency."""
