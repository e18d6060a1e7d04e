"""Topics as streams, with offsets in Spark's checkpoint."""
