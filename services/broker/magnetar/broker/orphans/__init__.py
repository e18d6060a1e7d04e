"""What is left in metadata although nothing names it any more: found, shown, cleared."""
