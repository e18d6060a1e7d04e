"""What to do about metadata that was put back from a copy: compare it with what bookies hold, and mend it."""
