"""Storage: the segment log, ledgers, managed ledgers and their cursors."""
