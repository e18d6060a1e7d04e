"""Where tasks keep a file while they work at it."""

from __future__ import annotations

import os


def scratch_directory() -> str | None:
    """Where Spark wants files of its tasks, which it removes in the end; None: where the system does."""
    directory = os.environ.get("SPARK_LOCAL_DIRS", "").split(",")[0]
    return directory if directory and os.path.isdir(directory) else None
