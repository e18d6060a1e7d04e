"""Routes of the admin API, one module or package for each object."""
