"""The subscription types, one module each, and the table of them."""
