"""`make kubernetes`: the chart on a real node, which is built on the first call; or just the node.

Installs and builds what is missing, then runs both tiers of tests. What cannot run here fails: a green run is
one that ran everything.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tests.kubernetes.programs import CannotBuild, build, why_no_node
from tests.kubernetes.single_node import SingleNode
from tests.kubernetes.tiers import RECORD_VARIABLE, REQUIRED_VARIABLE
from tools.deploy_setup import helm_program, set_up

ROOT: Final = Path(__file__).resolve().parents[2]


def arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog='make kubernetes ARGS="..."', description=__doc__)
    chosen = parser.add_mutually_exclusive_group()
    chosen.add_argument("--build", action="store_true", help="only build the node's programs, if need be")
    chosen.add_argument("--up", action="store_true", help="a node to try things on, until Ctrl-C; no tests")
    parser.add_argument("--record", metavar="PAGE", help="where a run writes what it did")
    parser.add_argument("pytest", nargs="*", help="for pytest, after --")
    return parser


def say(text: str) -> None:
    print(f"kubernetes: {text}", flush=True)


def up() -> None:
    """A node in the foreground."""
    began = time.monotonic()
    with SingleNode.running() as node:
        place, environment = node.plane.place, node.directory / "env"
        helm = helm_program()
        programs = [node.plane.programs, *([helm.parent] if helm else [])]
        variables = {**node.plane.environment, "PATH": ":".join([*map(str, programs), "$PATH"])}
        changed = {name: value for name, value in variables.items() if os.environ.get(name) != value}
        lines = [f'export {name}="{value}"' for name, value in changed.items()]
        lines += [
            f'knode() {{ nsenter --net=/run/netns/{place.namespace} "$@"; }}',
            f'kctr() {{ knode ctr --address {node.directory}/run/containerd.sock --namespace k8s.io "$@"; }}',
        ]
        environment.write_text("\n".join(lines) + "\n")
        say(f"the node is ready after {time.monotonic() - began:.1f} s; in another shell:")
        print(f"  . {environment}")
        print(
            "  knode kubectl get nodes; knode helm list; kctr images list   # always with knode", flush=True
        )
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        try:
            signal.pause()
        except KeyboardInterrupt:
            say("stopping")


def tests(record: str | None, more: Sequence[str]) -> int:
    """pytest's exit code."""
    environment = {**os.environ, REQUIRED_VARIABLE: "1"}
    if record:
        environment[RECORD_VARIABLE] = str(Path(record).absolute())
    command = [sys.executable, "tools/run_tests.py", "all", "tests/kubernetes", *more]
    return subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode


def main() -> None:
    chosen = arguments().parse_args()
    for name, why in set_up().items():
        say(f"NO {name}: {why}")
    try:
        say(f"the node's programs are in {build(say)}")
    except CannotBuild as error:
        sys.exit(f"kubernetes: {error}")
    if chosen.build:
        return
    if reason := why_no_node():
        sys.exit(f"kubernetes: {reason}")
    if chosen.up:
        up()
    else:
        sys.exit(tests(chosen.record, chosen.pytest))


if __name__ == "__main__":
    main()
