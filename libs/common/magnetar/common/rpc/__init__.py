"""Common parts of all gRPC services of Magnetar and their clients."""
