"""The columns: final once released, and documented as they are."""

from __future__ import annotations

import re
from pathlib import Path

from magnetar.ledger.cold.columns import COLUMN_NAMES, COLUMNS, REBUILD_COLUMNS

DOCUMENTED = Path(__file__).parents[4] / "docs" / "spark.md"

VERSION_1 = """
ledger_id int64, entry_id int64, batch_index int32, partition int32, publish_time timestamp(us, UTC)?,
event_time timestamp(us, UTC)?, broker_publish_time timestamp(us, UTC), message_index int64, key string?,
key_bytes binary?, ordering_key binary?, properties map<string, string>?, producer_name string?,
sequence_id int64?, schema_version binary?, deliver_at timestamp(us, UTC)?, replicated_from string?,
chunk_uuid string?, chunk_id int32?, chunk_total int32?, txn_most int64?, txn_least int64?, null_value bool,
payload binary?, raw_entry binary?, raw_reason string?, entry_metadata binary?, message_metadata binary?
"""


def test_the_columns_of_version_1_never_change() -> None:
    """A column may only be added, at the end."""
    told = ", ".join(f"{each.name} {each.type}{'?' if each.nullable else ''}" for each in COLUMNS)
    assert told == " ".join(VERSION_1.split())


def test_names_are_there_once_and_those_of_rebuilding_exist() -> None:
    assert len(set(COLUMN_NAMES)) == len(COLUMN_NAMES)
    assert set(REBUILD_COLUMNS) < set(COLUMN_NAMES)
    assert all(column.doc for column in COLUMNS)


def test_the_user_guide_has_every_column_with_its_type() -> None:
    told = re.findall(r"^\| `(\w+)` \| ([^|]+) \|", DOCUMENTED.read_text(encoding="utf-8"), re.MULTILINE)
    first = [name for name, _ in told].index("ledger_id")
    assert told[first : first + len(COLUMNS)] == [(each.name, str(each.type)) for each in COLUMNS]
