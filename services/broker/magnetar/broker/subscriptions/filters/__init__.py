"""Entry gates, which keep entries from going out: delayed delivery and hash ranges."""
