"""Routes of namespaces and their bundles."""
