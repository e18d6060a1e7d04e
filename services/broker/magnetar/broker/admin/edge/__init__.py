"""The HTTP edge of the admin API: server, routes as data, request bodies, errors, owners and peers."""
