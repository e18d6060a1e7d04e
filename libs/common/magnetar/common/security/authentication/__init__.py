"""Authentication: providers that derive a role from a credential, and the authenticator that asks them."""
