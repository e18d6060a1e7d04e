"""Stored rows as rows of a frame: columns, chunked messages joined, values decoded."""
