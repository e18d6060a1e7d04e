"""Routes of schemas."""
