"""Entry point of `python -m magnetar.spark.offload` and of spark-submit."""

from __future__ import annotations

import sys
from pathlib import Path

if sys.path and Path(sys.path[0] or ".").resolve() == Path(__file__).resolve().parent:
    del sys.path[0]  # spark-submit adds this directory, whose modules would hide others.

from magnetar.spark.offload.command import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
