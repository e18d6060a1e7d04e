"""Mistakes in the registry of schemas: who is checked, by what, and on the ground of which versions."""

from __future__ import annotations

from typing import Final

from tests.mutations.mistake import Mistake

_CLIENTS: Final = "services/broker/magnetar/broker/handlers/client_schemas.py"
_SCHEMAS: Final = "services/broker/magnetar/broker/schemas/"
_POLICIES: Final = "services/broker/magnetar/broker/policies/schema_policies.py"
_OF_CLIENTS: Final = ("tests/unit/broker/handlers/test_client_schemas.py",)
_OF_STORE: Final = ("tests/unit/broker/schemas/test_schema_store.py",)
_OF_CACHE: Final = ("tests/unit/broker/schemas/test_history_cache.py",)
_OF_POLICIES: Final = ("tests/unit/broker/policies/test_schema_policies.py",)

REGISTRY: Final = (
    Mistake(
        "every_consumer_brings_its_schema",
        "a consumer of a topic in use makes its schema the newest",
        _CLIENTS,
        "    if _is_unused(topic) and not await",
        "    if not await",
        _OF_CLIENTS,
    ),
    Mistake(
        "no_consumer_brings_its_schema",
        "the first consumer of an unused topic is refused",
        _CLIENTS,
        "    if _is_unused(topic) and not await",
        "    if False and not await",
        _OF_CLIENTS,
    ),
    Mistake(
        "data_does_not_make_a_topic_used",
        "a consumer brings a schema to a topic with messages without one",
        _CLIENTS,
        "        or topic.storage_bytes\n",
        "",
        _OF_CLIENTS,
    ),
    Mistake(
        "validation_is_not_enforced",
        "producers without a schema are taken where schemas are enforced",
        _CLIENTS,
        "    if rules.enforced and await",
        "    if False and await",
        _OF_CLIENTS,
    ),
    Mistake(
        "schemas_of_type_none_escape_validation",
        "a client that sends type None is taken where schemas are enforced",
        _CLIENTS,
        'command.HasField("schema") and command.schema.type != _NONE',
        'command.HasField("schema")',
        _OF_CLIENTS,
    ),
    Mistake(
        "auto_update_is_always_allowed",
        "clients add schemas where only operators may",
        f"{_SCHEMAS}schema_store.py",
        "        if not rules.may_update:",
        "        if False:",
        _OF_STORE,
    ),
    Mistake(
        "the_latest_key_is_not_guarded",
        "a version is appended on the ground of versions that were erased",
        f"{_SCHEMAS}schema_store.py",
        "        if history.latest_key:\n            # Versions",
        "        if False:\n            # Versions",
        _OF_STORE,
    ),
    Mistake(
        "deleted_versions_are_compared",
        "a deletion does not make room for another schema",
        f"{_SCHEMAS}history.py",
        "list(since_deletion([(each.version, definition_of_record(each)) for each in records]))",
        "[(each.version, definition_of_record(each)) for each in records if each.type != DELETED]",
        _OF_STORE,
    ),
    Mistake(
        "deleted_versions_are_lost",
        "messages before a deletion cannot be decoded",
        f"{_SCHEMAS}schema_store.py",
        "            record = await self._get(topic, number)\n",
        "            record = await self._get(topic, number if await self.has_schema(topic) else None)\n",
        _OF_STORE,
    ),
    Mistake(
        "outdated_histories_refuse",
        "a schema is refused by a version that is not the latest any more",
        f"{_SCHEMAS}schema_store.py",
        "                    if history.serial > asked_at:\n"
        "                        figures.INCOMPATIBLE.labels(str(topic.namespace)).inc()\n"
        "                        raise\n"
        "                    after = asked_at\n",
        "                    raise\n",
        _OF_CACHE,
    ),
    Mistake(
        "changes_of_others_are_not_heard",
        "a deleted schema keeps its version at other brokers",
        f"{_SCHEMAS}history_cache.py",
        "        if known is None or known.revision < revision:\n            self.forget(topic)",
        "        if known is None:\n            self.forget(topic)",
        _OF_CACHE,
    ),
    Mistake(
        "histories_are_kept_without_a_watch",
        "a broker that does not hear of changes answers from its memory",
        f"{_SCHEMAS}history_cache.py",
        "            if self._watched and self._reading",
        "            if self._reading",
        _OF_CACHE,
    ),
    Mistake(
        "each_producer_lists_for_itself",
        "ten thousand producers that reconnect list a topic's versions ten thousand times",
        f"{_SCHEMAS}history_cache.py",
        "        reading = self._reading.get(base)\n        if reading is None:",
        "        reading = self._reading.get(base)\n        if True:",
        _OF_CACHE,
    ),
    Mistake(
        "the_old_policy_comes_first",
        "schemaAutoUpdateCompatibilityStrategy overrides the newer policy",
        _POLICIES,
        "    for level in (topic, namespace):\n",
        "    for level in (topic,) if namespace.schema_auto_update_compatibility else (topic, namespace):\n",
        _OF_POLICIES,
    ),
    Mistake(
        "enforcement_of_the_topic_is_ignored",
        "only namespace and broker enforce schemas",
        _POLICIES,
        "            topic.schema_validation_enforced\n            or namespace",
        "            namespace",
        _OF_POLICIES,
    ),
)
