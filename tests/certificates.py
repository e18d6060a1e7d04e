"""Certificates for tests, made by the `openssl` command: an authority, and what it signs."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest


@dataclass(frozen=True, slots=True)
class Pair:
    certificate: Path
    key: Path


class Authority:
    """A certificate authority of its own in a directory; its certificate is what others trust."""

    def __init__(self, directory: Path, name: str = "authority") -> None:
        if shutil.which("openssl") is None:
            pytest.skip("there is no openssl command to make certificates with")
        self._directory = directory / name
        self._directory.mkdir(parents=True)
        self._pair = Pair(self._directory / "ca.pem", self._directory / "ca.key")
        _openssl(
            *("req", "-x509", *_NEW_KEY, "-nodes", "-days", "2", "-subj", f"/CN={name}"),
            *("-keyout", str(self._pair.key), "-out", str(self._pair.certificate)),
        )

    @property
    def certificate(self) -> Path:
        return self._pair.certificate

    def issue(self, name: str, uri: str = "") -> Pair:
        """Issue a certificate for 127.0.0.1 and localhost, as server and client; and for `uri` when given."""
        pair = Pair(self._directory / f"{name}.pem", self._directory / f"{name}.key")
        request, extensions = self._directory / f"{name}.csr", self._directory / f"{name}.ext"
        also = f",URI:{uri}" if uri else ""
        extensions.write_text(f"subjectAltName=IP:127.0.0.1,DNS:localhost{also}\n")
        _openssl(
            *("req", *_NEW_KEY, "-nodes", "-subj", f"/CN={name}"),
            *("-keyout", str(pair.key), "-out", str(request)),
        )
        _openssl(
            *("x509", "-req", "-in", str(request), "-days", "2", "-set_serial", "1"),
            *("-CA", str(self._pair.certificate), "-CAkey", str(self._pair.key)),
            *("-extfile", str(extensions), "-out", str(pair.certificate)),
        )
        return pair


_NEW_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1")
"""ECDSA on P-256: an RSA key takes up to a second to generate."""


def _openssl(*arguments: str) -> None:
    done = subprocess.run(["openssl", *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
