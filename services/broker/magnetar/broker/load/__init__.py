"""Load balancing: load reports, bundle placement, load shedding and bundle splits."""
