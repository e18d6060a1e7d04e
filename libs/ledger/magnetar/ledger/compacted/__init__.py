"""The compacted view of a topic: segments of pages, the keys of messages, and what survives of them."""
