"""`python -m bench`: footprint, one produce and one consume figure, each on a fresh standalone.

With `--against URL` produce and consume are measured on that broker instead.
"""

from __future__ import annotations

import sys

from bench import consume, footprint, produce

if __name__ == "__main__":
    arguments = sys.argv[1:]
    if not arguments:
        footprint.main([])
    produce.main(arguments)
    consume.main(arguments)
