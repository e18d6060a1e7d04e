"""`magnetar doctor` with a real etcd: its pages are as the doctor reads them."""

from __future__ import annotations

from pathlib import Path

from magnetar.cli.doctor.cluster_checks import etcd_findings
from magnetar.cli.doctor.probes import Probes

from tests.etcd_server import EtcdServer


def test_etcd_is_examined_and_missed_when_it_is_gone(tmp_path: Path) -> None:
    with EtcdServer.running(tmp_path) as etcd:
        member = etcd.url.removeprefix("etcd:")
        found = {finding.check: finding for finding in etcd_findings(Probes(), etcd.url)}
        assert set(found) == {f"etcd {member}", f"clock of etcd {member}", f"disk of etcd {member}"}
        assert found[f"etcd {member}"].found.startswith("healthy")
        assert found[f"clock of etcd {member}"].state == "ok"
        etcd.kill()
        (gone,) = etcd_findings(Probes(), etcd.url)
        assert (gone.state, gone.found) == ("failure", "Connection refused")
