"""`python -m magnetar.spark.offload`, and what spark-submit is given."""

from __future__ import annotations

import sys
from pathlib import Path

if sys.path and Path(sys.path[0] or ".").resolve() == Path(__file__).resolve().parent:
    del sys.path[0]  # spark-submit puts it there: the modules beside this one would hide others

from magnetar.spark.offload.command import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
