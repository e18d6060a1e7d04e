"""Registry of topics: loading, creating, partitioning, deleting, and proving ownership of them."""
