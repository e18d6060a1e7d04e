"""One measurement in a process of its own: `python -m bench.storage.worker JSON` prints its figures as JSON.

The load shares the process with what it drives, the local log or the quorum client; bookies are other
processes, whose ids are in the JSON.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import uvloop
from magnetar.ledger.segment_log.config import SegmentLogConfig
from magnetar.standalone.process import favor_waiting_threads

from bench.storage.appends import AppendLoad, measure
from bench.storage.reads import measure_local_reads, measure_quorum_reads, write_backlog
from bench.storage.stores import local_store, quorum_store


async def work(task: dict[str, Any]) -> dict[str, Any]:
    """The action in the task's "do"."""
    if task["do"] == "append":
        load = AppendLoad(**task["load"])
        if "etcd" in task:
            async with quorum_store(task["etcd"]) as bookies:
                return await measure(bookies, load, quorum=(3, 2), bookie_pids=task["pids"])
        async with local_store(Path(task["directory"]), SegmentLogConfig(free_space_headroom_bytes=0)) as log:
            return await measure(log, load, quorum=(1, 1), bookie_pids=[])
    if task["do"] == "read local":
        return await measure_local_reads(Path(task["directory"]), task["bytes"], task["run"], task["passes"])
    async with quorum_store(task["etcd"]) as bookies:
        if task["do"] == "write backlog":
            ref = await write_backlog(bookies, task["bytes"], task["run"])
            return {"id": ref.id, "key": ref.key}
        return await measure_quorum_reads(bookies, task["ledger"], task["passes"], task["pids"])


def main(argument: str) -> None:
    task = json.loads(argument)
    favor_waiting_threads()  # as every service does
    if "directory" in task:
        Path(task["directory"]).mkdir(parents=True)
    print(json.dumps(uvloop.run(work(task))))


if __name__ == "__main__":
    main(sys.argv[1])
