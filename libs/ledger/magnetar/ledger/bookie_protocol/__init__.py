"""What quorum clients and bookies say to each other, above any transport."""
