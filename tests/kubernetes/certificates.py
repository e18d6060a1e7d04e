"""The certificates of a node: an authority of its own and what it signs, made by the `openssl` command.

Kubernetes reads who somebody is from the subject: CN is the user, O the group.
"""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final

DAYS: Final = "30"
_EXTENSIONS: Final = "extendedKeyUsage=clientAuth,serverAuth\n"


class Authority:
    """A certificate authority in a directory, which holds everything that it issues too."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True)
        self._directory = directory
        self.certificate, self._key = directory / "authority.crt", directory / "authority.key"
        _new_key(self._key)
        _openssl(
            *("req", "-x509", "-key", self._key, "-subj", "/CN=node-authority", "-days", DAYS),
            *("-out", self.certificate),
        )

    def issue(self, name: str, subject: str, addresses: Sequence[str] = ()) -> tuple[Path, Path]:
        """Certificate and key: a client's and, with addresses (`IP:...`, `DNS:...`), a server's."""
        certificate, key = self._directory / f"{name}.crt", self._directory / f"{name}.key"
        request, extensions = self._directory / f"{name}.csr", self._directory / f"{name}.ext"
        names = f"subjectAltName={','.join(addresses)}\n" if addresses else ""
        extensions.write_text(_EXTENSIONS + names)
        _new_key(key)
        _openssl("req", "-new", "-key", key, "-subj", subject, "-out", request)
        _openssl(
            *("x509", "-req", "-in", request, "-days", DAYS, "-extfile", extensions, "-out", certificate),
            *("-CA", self.certificate, "-CAkey", self._key, "-CAcreateserial"),
        )
        return certificate, key

    def key_pair(self, name: str) -> tuple[Path, Path]:
        """A public and a private RSA key, by which service accounts' tokens are signed."""
        public, private = self._directory / f"{name}.pub", self._directory / f"{name}.key"
        _openssl("genrsa", "-out", private, "2048")
        _openssl("rsa", "-in", private, "-pubout", "-out", public)
        return public, private


def _new_key(path: Path) -> None:
    _openssl("ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", path)


def _openssl(*arguments: str | Path) -> None:
    done = subprocess.run(
        ["openssl", *map(str, arguments)], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, f"openssl {arguments[0]}: {done.stderr}"
