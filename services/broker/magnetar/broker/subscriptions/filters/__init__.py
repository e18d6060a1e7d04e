"""Entry gates, which hold entries back from delivery: delayed delivery and hash ranges."""
