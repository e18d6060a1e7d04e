"""Topics as tables: what to read is planned, split into tasks and read."""
