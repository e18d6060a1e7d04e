"""Sockets: the listener and the thin asyncio shell of a client connection."""
