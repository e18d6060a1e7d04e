"""Protocol between quorum clients and bookies, independent of the transport."""
