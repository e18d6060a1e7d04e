"""`python -m magnetar.spark.offload`, and what spark-submit is given."""

from __future__ import annotations

import sys

from magnetar.spark.offload.command import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
