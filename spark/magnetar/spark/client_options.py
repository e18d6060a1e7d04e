"""How Spark's processes reach brokers as clients: one set of options for sources and sinks."""

from __future__ import annotations

import os
from typing import Final

from magnetar.client.authentication.methods import Token
from magnetar.client.options import ClientOptions, Tls

TOKEN_VARIABLE: Final = "MAGNETAR_TOKEN"

RECONNECT_S_MAX: Final = 300.0
"""Seconds for which producers and subscriptions try to get back; then their task or batch fails, and Spark
tries it again. Without an end a query would stand still, and Spark could not tell.
"""


def client_options(
    service_url: str,
    *,
    token: str = "",
    trust_certs_file: str = "",
    allow_insecure: bool = False,
    listener_name: str = "",
) -> ClientOptions:
    """Returns the client options, with a token from the environment if none is given: call it in the process
    that uses them. They can be keys of dictionaries.
    """
    token = token or os.environ.get(TOKEN_VARIABLE, "")
    return ClientOptions(
        service_url=service_url,
        authentication=Token(token) if token else None,
        tls=Tls(trust_certs_file=trust_certs_file, allow_insecure=allow_insecure),
        listener_name=listener_name,
        reconnect_timeout_s=RECONNECT_S_MAX,
    )
