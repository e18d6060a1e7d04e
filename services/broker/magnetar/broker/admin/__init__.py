"""HTTP: the admin API, lookups over HTTP, metrics and health."""
