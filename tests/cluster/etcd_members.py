"""An etcd of several members, which others use as they use one."""

from __future__ import annotations

import json
from pathlib import Path

from tests.cluster.processes import Placing, all_here
from tests.etcd_server import EtcdServer
from tools.local_cluster.etcd_program import find_etcd


class EtcdMembers(EtcdServer):
    """Members of the etcd on PATH, or of the one that tests bring."""

    def __init__(self, directory: Path, count: int = 3, placing: Placing = all_here) -> None:
        super().__init__(directory)
        names = [f"etcd-{number + 1}" for number in range(count)]
        self.members = [
            EtcdServer(directory / name, name=name, program=find_etcd(), place=placing(name))
            for name in names
        ]
        for member in self.members:
            member.members = self.members

    @property
    def endpoint(self) -> str:
        """Of all members."""
        return ",".join(member.endpoint for member in self.members)

    @property
    def leader(self) -> EtcdServer:
        """The member that the others follow."""
        for member in self.members:
            if member.runs:
                told = json.loads(member.etcdctl("endpoint", "status", "--write-out", "json"))[0]["Status"]
                if told["leader"] == told["header"]["member_id"]:
                    return member
        raise AssertionError(f"no member of etcd leads\n{self.log_tail()}")

    def start(self) -> None:
        """Those that do not run."""
        for member in self.members:
            if not member.runs:
                member.launch()
        for member in self.members:
            member.wait_until_healthy()

    def stop(self) -> None:
        for member in self.members:
            member.stop()

    def kill(self) -> None:
        for member in self.members:
            member.kill()

    def pause(self) -> None:
        for member in self.members:
            member.pause()

    def resume(self) -> None:
        for member in self.members:
            member.resume()

    def log_tail(self) -> str:
        return "\n".join(member.log_tail() for member in self.members)
