"""`make test-compiled`: tests on the modules that mypyc compiled, and those that cannot run there."""

from __future__ import annotations

import os
from typing import Final

from magnetar.common.runtime import speedups

WANTED: Final = bool(os.environ.get("MAGNETAR_TEST_SPEEDUPS"))

_OTHER_CLASS: Final = "a class of the test takes the place of a compiled one, which compiled code refuses"
_PATCHED: Final = "the test patches a constant or a method, which compiled code has inlined"

NOT_COMPILED: Final = {
    "tests/property/broker/test_failover_shares.py::test_another_choice": _PATCHED,
    "tests/property/security/test_broker_states.py": _OTHER_CLASS,
    "tests/unit/broker/handlers/test_acks.py": _OTHER_CLASS,
    "tests/unit/broker/subscriptions/test_transactional_dispatch.py::test_consumers_are_told": _PATCHED,
    "tests/unit/broker/subscriptions/types/test_shared.py::test_a_message_whose_consumer_leaves": _PATCHED,
    "tests/unit/broker/transport/test_connection.py::test_a_client_that_reads_nothing": _PATCHED,
    "tests/unit/broker/transport/test_connection.py::test_acknowledgements_that_wait": _OTHER_CLASS,
    "tests/unit/common/wire/test_send_parser.py::test_a_run_is_bounded": _PATCHED,
    "tests/unit/common/wire/test_send_parser.py::test_sends_of_a_transaction_are_cut": _PATCHED,
    "tests/unit/ledger/test_garbage_collector.py::test_promise[interruption]": _PATCHED,
}
"""Why tests, by the beginning of their ids, are skipped on compiled modules."""

if WANTED:
    speedups.activate()
    if not speedups.description().startswith("compiled"):
        raise RuntimeError(f"MAGNETAR_TEST_SPEEDUPS is set, but not fulfilled: {speedups.description()}")


def why_not_compiled(node_id: str) -> str | None:
    """Returns why this test is skipped in this run; None if it is not."""
    if not WANTED:
        return None
    return next((why for start, why in NOT_COMPILED.items() if node_id.startswith(start)), None)
