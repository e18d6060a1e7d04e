"""An image with one static program in it, as `docker save` writes them: no registry, no daemon.

For what a node itself needs; the project's own images are built as everybody builds them.
"""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from pathlib import Path
from typing import Any, Final

ARCHITECTURES: Final = {"x86_64": "amd64", "aarch64": "arm64"}
"""As the container world calls what the kernel calls its machine."""


def write_image(archive: Path, tag: str, program: Path, machine: str) -> None:
    """Write the image `tag`, which runs the program; `machine` is what `uname -m` says."""
    layer = _layer(program)
    digest = hashlib.sha256(layer).hexdigest()
    entrypoint = [f"/{program.name}"]
    config = {
        "architecture": ARCHITECTURES[machine],
        "os": "linux",
        "created": "1970-01-01T00:00:00Z",
        "config": {"Entrypoint": entrypoint, "WorkingDir": "/"},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
        "history": [{"created": "1970-01-01T00:00:00Z", "created_by": "magnetar tests"}],
    }
    config_bytes = _json(config)
    config_name = f"{hashlib.sha256(config_bytes).hexdigest()}.json"
    manifest = [{"Config": config_name, "RepoTags": [tag], "Layers": [f"{digest}/layer.tar"]}]
    with tarfile.open(archive, "w") as tar:
        _add(tar, config_name, config_bytes)
        _add(tar, f"{digest}/layer.tar", layer)
        _add(tar, "manifest.json", _json(manifest))


def _layer(program: Path) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as tar:
        _add(tar, program.name, program.read_bytes(), 0o755)
    return buffer.getvalue()


def _add(tar: tarfile.TarFile, name: str, content: bytes, mode: int = 0o644) -> None:
    member = tarfile.TarInfo(name)
    member.size, member.mode = len(content), mode
    tar.addfile(member, io.BytesIO(content))


def _json(value: Any) -> bytes:
    return json.dumps(value).encode()
