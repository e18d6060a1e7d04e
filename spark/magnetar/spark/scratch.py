"""The directory for temporary files of tasks."""

from __future__ import annotations

import os


def scratch_directory() -> str | None:
    """Return Spark's directory for files of tasks, which it removes in the end; None: the system's."""
    directory = os.environ.get("SPARK_LOCAL_DIRS", "").split(",")[0]
    return directory if directory and os.path.isdir(directory) else None
