"""Outcomes of TLS handshakes on our ports: what is counted, and what is said in the log."""

from __future__ import annotations

import ssl
from typing import Final

from magnetar.common.obs.metrics import REGISTRY, begin_at_zero
from prometheus_client import Counter

OK: Final = "ok"
PLAINTEXT: Final = "plaintext"
TIMEOUT: Final = "timeout"
CLOSED: Final = "closed"
CROWDED: Final = "crowded"
NO_CERTIFICATE: Final = "no_certificate"
UNTRUSTED: Final = "untrusted"
EXPIRED: Final = "expired"
REVOKED: Final = "revoked"
REFUSED_BY_CLIENT: Final = "refused_by_client"
INCOMPATIBLE: Final = "incompatible"
FAILED: Final = "failed"

HANDSHAKES: Final = Counter(
    "magnetar_tls_handshakes",
    "Connections to TLS ports by the result of the handshake: ok; plaintext: no TLS was spoken; timeout; "
    "closed by the client before the end; crowded: too many waited; no_certificate, untrusted, expired, "
    "revoked: the client's certificate; refused_by_client: it does not trust ours; incompatible: versions or "
    "cipher suites; failed: anything else.",
    ["result"],
    registry=REGISTRY,
)
begin_at_zero(
    HANDSHAKES,
    *(OK, PLAINTEXT, TIMEOUT, CLOSED, CROWDED, NO_CERTIFICATE, UNTRUSTED, EXPIRED, REVOKED),
    *(REFUSED_BY_CLIENT, INCOMPATIBLE, FAILED),
)

_EXPIRED_CODES: Final = frozenset({9, 10})
"""X509_V_ERR_CERT_NOT_YET_VALID and X509_V_ERR_CERT_HAS_EXPIRED."""

_REVOKED_CODE: Final = 23

_INCOMPATIBLE: Final = frozenset(
    {
        "NO_PROTOCOLS_AVAILABLE",
        "NO_SHARED_CIPHER",
        "NO_SUITABLE_SIGNATURE_ALGORITHM",
        "UNSUPPORTED_PROTOCOL",
        "VERSION_TOO_LOW",
        "WRONG_VERSION_NUMBER",
    }
)


def outcome_of(error: BaseException) -> tuple[str, str]:
    """The result to count for a failed handshake, and the reason to log."""
    if isinstance(error, ssl.SSLCertVerificationError):
        if error.verify_code in _EXPIRED_CODES:
            return EXPIRED, f"the client's certificate: {error.verify_message}"
        if error.verify_code == _REVOKED_CODE:
            return REVOKED, f"the client's certificate: {error.verify_message}"
        return UNTRUSTED, f"the client's certificate: {error.verify_message}"
    if isinstance(error, ssl.SSLError) and error.reason is not None:
        text = error.reason.replace("_", " ").lower()
        if error.reason == "PEER_DID_NOT_RETURN_A_CERTIFICATE":
            return NO_CERTIFICATE, "the client has no certificate"
        if "ALERT" in error.reason:
            return REFUSED_BY_CLIENT, f"the client says: {text}"
        return (INCOMPATIBLE if error.reason in _INCOMPATIBLE else FAILED), text
    if isinstance(error, TimeoutError) or "taking longer" in str(error):
        return TIMEOUT, "not complete in time"
    if isinstance(error, OSError):
        return CLOSED, "the client closed the connection"
    return FAILED, f"{type(error).__name__}: {error}"
