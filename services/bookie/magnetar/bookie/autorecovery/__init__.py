"""Auto-recovery: what ledgers lack in copies is found, copied and recorded by the bookies themselves."""
