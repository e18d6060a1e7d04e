"""Auto-recovery: bookies find, copy and record missing replicas of ledgers."""
