"""Python of Spark's workers: on the driver's machine, it is checked before a task fails deep inside Spark.

PySpark runs workers with `PYSPARK_PYTHON` or else `python3`, whichever that is. A script that was started
with the Python of a virtual environment then has workers without magnetar-spark.
"""

from __future__ import annotations

import subprocess
import sys
from typing import Final

from magnetar.common.errors import ConfigError
from pyspark.sql import SparkSession

_NEEDED: Final = "import magnetar.spark.data_source"
_SECONDS_MAX: Final = 60.0


def check_worker_python(spark: SparkSession) -> None:
    """Raises ConfigError if workers are on this machine and their Python lacks what the format needs.

    Workers elsewhere are not asked, which would take a task; nor those that get packages from `--py-files`.
    """
    context = getattr(spark, "_sc", None)  # a session of Spark Connect has none
    if context is None or not str(context.master).startswith("local"):
        return
    python = str(context.pythonExec)
    if python == sys.executable or context._python_includes:
        return
    try:
        done = subprocess.run(
            [python, "-c", _NEEDED],
            capture_output=True, text=True, timeout=_SECONDS_MAX, stdin=subprocess.DEVNULL, check=False,
        )  # fmt: skip
        why = "" if done.returncode == 0 else (done.stderr.strip().splitlines() or ["it failed"])[-1]
    except (OSError, subprocess.TimeoutExpired) as error:
        why = str(error)
    if why:
        raise ConfigError(
            f"Python of Spark's workers ({python}) cannot load magnetar.spark: {why}; set "
            f"PYSPARK_PYTHON={sys.executable} in the environment before the session is made"
        )
