"""Routes of clusters."""
