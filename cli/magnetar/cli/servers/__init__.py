"""Commands that start servers."""
