"""Service processes: standalone, broker, bookie and discovery."""
