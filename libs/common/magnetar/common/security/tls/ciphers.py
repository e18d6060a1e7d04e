"""Cipher suites: Java's names, which configuration files have, as OpenSSL calls them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

OPENSSL_NAMES: Final = {
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256": "ECDHE-ECDSA-AES128-GCM-SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384": "ECDHE-ECDSA-AES256-GCM-SHA384",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-ECDSA-CHACHA20-POLY1305",
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256": "ECDHE-RSA-AES128-GCM-SHA256",
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384": "ECDHE-RSA-AES256-GCM-SHA384",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-RSA-CHACHA20-POLY1305",
}
"""Suites of TLS 1.2 with forward secrecy and authenticated encryption."""

TLS_1_3: Final = frozenset(
    {"TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256"}
)
"""Suites of TLS 1.3, the same by both names. Python's ssl can have all of them or none."""


def cipher_problems(key: str, names: Sequence[str]) -> list[str]:
    """Problems of the suites that setting `key` names."""
    found = [
        f"{key}: unknown cipher suite {name!r}; known are {', '.join((*OPENSSL_NAMES, *sorted(TLS_1_3)))}"
        for name in names
        if name not in OPENSSL_NAMES and name not in TLS_1_3
    ]
    missing = TLS_1_3.difference(names)
    if missing and len(missing) < len(TLS_1_3):
        found.append(
            f"{key} has some of the suites of TLS 1.3 and not {', '.join(sorted(missing))}: they can only be "
            "allowed together; name all three, or none to allow TLS 1.2 alone"
        )
    return found


def openssl_ciphers(names: Sequence[str]) -> str:
    """The suites of TLS 1.2 among `names` as OpenSSL's list; "" when there is none."""
    return ":".join(OPENSSL_NAMES[name] for name in names if name in OPENSSL_NAMES)
