"""Security: who a caller is, what it may do, and the record of both."""
