"""`python -m bench`: footprint, one produce and one consume figure, each on a fresh standalone."""

from __future__ import annotations

from bench import consume, footprint, produce

if __name__ == "__main__":
    footprint.main()
    produce.main()
    consume.main()
