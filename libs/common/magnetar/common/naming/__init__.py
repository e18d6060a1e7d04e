"""Names and positions: pure values with their text forms."""
