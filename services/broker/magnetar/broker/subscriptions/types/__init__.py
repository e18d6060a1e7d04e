"""The subscription types, one module each, and their table."""
