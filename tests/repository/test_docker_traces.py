"""What a Docker daemon of our own changes on a machine is put back, and nothing else; without a daemon."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools import docker_daemon
from tools.docker_traces import Machine, mounts, policy, undone

BEFORE = """
*filter
:INPUT ACCEPT [12:345]
:FORWARD ACCEPT [0:0]
:OUTPUT ACCEPT [0:0]
:MINE - [0:0]
-A INPUT -i eth0 -p tcp -m tcp --dport 22 -j ACCEPT
-A FORWARD -i mgt0 -j MINE
COMMIT
*nat
:POSTROUTING ACCEPT [0:0]
-A POSTROUTING -s 10.1.0.0/16 ! -o eth0 -j MASQUERADE
COMMIT
""".splitlines()
WITH_DOCKER = """
*filter
:INPUT ACCEPT [98:765]
:FORWARD DROP [0:0]
:OUTPUT ACCEPT [0:0]
:DOCKER - [0:0]
:DOCKER-ISOLATION-STAGE-1 - [0:0]
:DOCKER-USER - [0:0]
:MINE - [0:0]
-A INPUT -i eth0 -p tcp -m tcp --dport 22 -j ACCEPT
-A FORWARD -j DOCKER-USER
-A FORWARD -o docker0 -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
-A FORWARD -i br-0123456789ab ! -o br-0123456789ab -j ACCEPT
-A FORWARD -i mgt0 -j MINE
-A FORWARD -i mgt1 -j MINE
-A DOCKER-ISOLATION-STAGE-1 -j RETURN
-A DOCKER-USER -j RETURN
COMMIT
*nat
:POSTROUTING ACCEPT [3:180]
:DOCKER - [0:0]
-A POSTROUTING -s 172.17.0.0/16 ! -o docker0 -j MASQUERADE
-A POSTROUTING -s 10.1.0.0/16 ! -o eth0 -j MASQUERADE
-A POSTROUTING -s 172.18.0.2/32 -d 172.18.0.2/32 -p tcp -m tcp --dport 6650 -j MASQUERADE
-A DOCKER -i docker0 -j RETURN
COMMIT
""".splitlines()
UNDONE = """*filter
-F DOCKER
-F DOCKER-ISOLATION-STAGE-1
-F DOCKER-USER
-D FORWARD -j DOCKER-USER
-D FORWARD -o docker0 -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
-D FORWARD -i br-0123456789ab ! -o br-0123456789ab -j ACCEPT
-X DOCKER
-X DOCKER-ISOLATION-STAGE-1
-X DOCKER-USER
COMMIT
*nat
-F DOCKER
-D POSTROUTING -s 172.17.0.0/16 ! -o docker0 -j MASQUERADE
-D POSTROUTING -s 172.18.0.2/32 -d 172.18.0.2/32 -p tcp -m tcp --dport 6650 -j MASQUERADE
-X DOCKER
COMMIT
"""


def test_rules_and_chains_of_docker_go_and_those_of_others_stay() -> None:
    assert undone(BEFORE, WITH_DOCKER) == UNDONE.splitlines()
    assert undone(WITH_DOCKER, WITH_DOCKER) == [], "a daemon of the machine's had them"
    assert undone(BEFORE, BEFORE) == []


def test_the_policy_is_that_of_the_table_that_filters() -> None:
    assert policy(BEFORE) == "ACCEPT"
    assert policy(WITH_DOCKER) == "DROP"
    assert policy(["*mangle", ":FORWARD ACCEPT [0:0]", "COMMIT"]) == ""


def test_what_a_machine_was_like_is_known_until_it_is_started_anew(tmp_path: Path) -> None:
    there = Machine.now()
    there.write(tmp_path / "before")
    assert Machine.read(tmp_path / "before") == there
    assert "/proc" in there.mounts
    file = tmp_path / "before"
    file.write_text(file.read_text().replace(there.boot, "another"))
    assert Machine.read(file) is None
    file.write_text(file.read_text()[:20])
    assert Machine.read(file) is None
    assert Machine.read(tmp_path / "nothing") is None


def test_mounts_are_read_as_the_kernel_writes_them() -> None:
    line = "43 27 254:0 / /a\\040b/c rw,relatime shared:2 - ext4 /dev/vda rw"
    assert mounts(line) == ["/a b/c"]


def test_a_daemon_of_our_own_uses_no_directory_that_others_prepared(tmp_path: Path) -> None:
    place = tmp_path / "run"
    docker_daemon.private_directory(place)
    docker_daemon.private_directory(place)  # ours, from the time before
    place.chmod(0o770)
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "file").touch()
    for name in ("run", "link", "file"):
        with pytest.raises(docker_daemon.DockerUnavailable, match="remove it"):
            docker_daemon.private_directory(tmp_path / name)
