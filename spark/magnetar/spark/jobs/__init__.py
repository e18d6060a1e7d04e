"""Parts shared by the jobs `compact` and `verify`."""
