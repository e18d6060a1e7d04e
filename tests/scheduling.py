"""Which tests share a process, and in which order files begin, when pytest-xdist runs several processes.

Tests that start servers share them by file, so a file stays in one process. Spark's tests share one Java
machine and those of deployment one Docker daemon with fixed ports: each of these two groups stays in one
process. Property tests and simulations are spread test by test. Servers mostly wait, so they begin first, the
longest files ahead, and tests that are bound by the processor fill what is left.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Any, Final

from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped]

UNIT: Final = ("tests/repository/", "tests/unit/")
GENERATED: Final = ("tests/property/", "tests/simulation/")
IN_PROCESS: Final = (*UNIT, *GENERATED)
"""Directories whose tests start no servers."""
GROUPS: Final = {"tests/spark/": "spark", "tests/deploy/": "deploy", "tests/kubernetes/": "deploy"}
"""Directories whose tests run one after the other."""
LONGEST: Final = (
    "tests/faults/test_kills.py",
    "tests/clients/test_clients_of_a_cluster.py",
    "tests/clients/test_clients_of_a_standalone.py",
    "tests/cluster/test_chaos.py",
    "tests/cluster/test_faults_broker.py",
    "tests/integration/test_admin_deletion.py",
    "tests/cluster/test_broker_over_bookies.py",
    "tests/faults/test_damaged_bytes.py",
    "tests/cluster/test_faults_bookies.py",
    "tests/cluster/test_backup_and_restore.py",
    "tests/integration/test_corpus.py",
    "tests/integration/test_admin_openapi.py",
    "tests/soak/test_soak.py",
    "tests/cluster/test_rolling_upgrade.py",
    "tests/faults/test_full_disk.py",
)
"""Files with servers that take more than a minute in the full tier, by `pytest --durations=0`."""
_PARTS: Final = 16
"""How many pieces a file of GENERATED is cut into."""


def group(nodeid: str) -> str:
    """Name what runs in one process, one test after the other."""
    file, _, test = nodeid.partition("::")
    if file.startswith(GENERATED):
        return f"{file} {zlib.crc32(test.encode()) % _PARTS}"
    return next((name for directory, name in GROUPS.items() if file.startswith(directory)), file)


def turn(nodeid: str) -> int:
    """Return the place of a test's file in the order of the run: Spark, long files, deployment, others."""
    file = nodeid.partition("::")[0]
    if file.startswith(IN_PROCESS):
        return len(LONGEST) + (3 if file.startswith(GENERATED) else 4)
    if file in LONGEST:
        return 1 + LONGEST.index(file)
    first = {"spark": 0, "deploy": len(LONGEST) + 1}
    return first.get(group(nodeid), len(LONGEST) + 2)


class Scheduling(LoadScopeScheduling):  # type: ignore[misc]
    """Hands out groups in the order of `turn`."""

    def __init__(self, config: Any, log: Any = None) -> None:
        super().__init__(config, log)
        config.option.loadscopereorder = False

    def _split_scope(self, nodeid: str) -> str:
        return group(nodeid)


def in_turn(items: Sequence[Any]) -> list[Any]:
    """Return collected tests in the order in which they begin; tests of a file keep theirs."""
    return sorted(items, key=lambda item: turn(item.nodeid))
