"""Security: identities, rights, TLS and audit, for every service."""
