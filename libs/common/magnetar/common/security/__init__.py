"""Authentication, authorization, TLS, audit, and the identities of our own services."""
