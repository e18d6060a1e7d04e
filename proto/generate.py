"""Generate the Python code of every .proto file: `make proto`; `--check` fails when the committed is stale.

The generated code is committed (docs/decisions/generated-code.md), each file with its user.
"""

from __future__ import annotations

import argparse
import filecmp
import sys
import tempfile
from pathlib import Path

from grpc_tools import protoc

ROOT = Path(__file__).resolve().parent.parent

TARGETS = {
    "proto/pulsar/pulsar.proto": "libs/common/magnetar/common/wire",
    "proto/metadata/v1/metadata.proto": "libs/common/magnetar/common/metadata",
    "proto/metadata/v1/served_store.proto": "libs/common/magnetar/common/metadata",
    "proto/control/v1/control.proto": "libs/common/magnetar/common/control",
    "proto/offload/v1/offload.proto": "libs/common/magnetar/common/offload",
    "proto/bookie/v1/bookie.proto": "libs/ledger/magnetar/ledger/bookie_protocol",
    "proto/storage/v1/cursor_ledger.proto": "libs/ledger/magnetar/ledger/managed_ledger",
    "proto/storage/v1/transaction_log.proto": "libs/ledger/magnetar/ledger/transaction_log",
}


def generate(proto: Path, target: Path) -> None:
    """Write `<name>_pb2.py` and `<name>_pb2.pyi` for one file into `target`."""
    arguments = [
        "protoc",
        f"-I{proto.parent}",
        f"--python_out={target}",
        f"--plugin=protoc-gen-mypy={Path(sys.executable).parent / 'protoc-gen-mypy'}",
        f"--mypy_out=quiet:{target}",
        str(proto),
    ]
    if protoc.main(arguments) != 0:
        sys.exit(f"protoc failed on {proto.relative_to(ROOT)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--check", action="store_true", help="write nothing; fail when the code is out of date"
    )
    check = parser.parse_args().check
    stale = []
    for source, room in TARGETS.items():
        proto, target = ROOT / source, ROOT / room
        if not proto.exists():
            continue
        with tempfile.TemporaryDirectory() as scratch:
            generate(proto, Path(scratch))
            for made in sorted(Path(scratch).iterdir()):
                committed = target / made.name
                if not committed.exists() or not filecmp.cmp(made, committed, shallow=False):
                    stale.append(str(committed.relative_to(ROOT)))
                    if not check:
                        committed.write_bytes(made.read_bytes())
    if check and stale:
        sys.exit("generated code is out of date, run 'make proto': " + ", ".join(stale))


if __name__ == "__main__":
    main()
