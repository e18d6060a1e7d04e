"""Mistakes in the rules of the schema registry: directions, versions, aliases, unions."""

from __future__ import annotations

from typing import Final

from tests.mutations.mistake import Mistake

_RULES: Final = "libs/common/magnetar/common/schemas/"
_VERDICTS: Final = ("tests/unit/common/schemas/test_verdicts.py",)
_REFUSALS: Final = ("tests/unit/common/schemas/test_refusals.py",)

SCHEMAS: Final = (
    Mistake(
        "directions_are_exchanged",
        "BACKWARD asks whether the old schema reads the new one",
        f"{_RULES}rules.py",
        "found = checkers.misfit(new, old, comparison) if rule in _BACKWARD",
        "found = checkers.misfit(old, new, comparison) if rule in _BACKWARD",
        _VERDICTS,
    ),
    Mistake(
        "transitive_strategies_look_at_the_latest_version_only",
        "an older version that does not fit is not seen",
        f"{_RULES}rules.py",
        "versions if comparison.transitive else versions[-1:]",
        "versions[-1:]",
        _VERDICTS,
    ),
    Mistake(
        "all_strategies_look_at_every_version",
        "a schema that only an old version cannot read is refused",
        f"{_RULES}rules.py",
        "versions if comparison.transitive else versions[-1:]",
        "versions",
        _VERDICTS,
    ),
    Mistake(
        "a_deletion_is_ignored",
        "a new schema is compared with versions that were deleted",
        f"{_RULES}rules.py",
        "            return history[index + 1 :]",
        "            return [each for each in history if each[1].type != SchemaType.NONE]",
        _VERDICTS,
    ),
    Mistake(
        "aliases_count_on_the_writer",
        "a writer's aliases rename the reader",
        f"{_RULES}avro_resolution.py",
        "written = renamed(writer.root, reader.aliases)",
        "written = renamed(writer.root, writer.aliases)",
        _VERDICTS,
    ),
    Mistake(
        "the_first_record_of_a_union_is_taken",
        "a record is read by a branch of a union that lacks its fields",
        f"{_RULES}avro_resolution.py",
        "and self._fits(branch, writer)",
        "and True",
        _VERDICTS,
    ),
    Mistake(
        "enums_are_compared_by_symbols",
        "an enum with another set of symbols is refused",
        f"{_RULES}avro_resolution.py",
        "            if short_name(name) != short_name(written):\n",
        "            if short_name(name) != short_name(written) or getattr(reader, 'symbols', 0) != getattr("
        "writer, 'symbols', 0):\n",
        _VERDICTS,
    ),
    Mistake(
        "branches_of_a_union_go_by_short_names",
        "an enum of another namespace is read by a union that Java's decoder finds no branch in",
        f"{_RULES}avro_resolution.py",
        "not isinstance(writer, Named) or branch.name == writer.name",
        "not isinstance(writer, Named) or short_name(branch.name) == short_name(writer.name)",
        _VERDICTS,
    ),
    Mistake(
        "equal_unions_go_by_full_names",
        "an enum of a union may not move to another namespace",
        f"{_RULES}avro_resolution.py",
        "short_name(reader.name) != short_name(writer.name):\n                    return False",
        "reader.name != writer.name:\n                    return False",
        _VERDICTS,
    ),
    Mistake(
        "names_of_records_are_compared",
        "a record with another name is refused",
        f"{_RULES}avro_resolution.py",
        "        case Record(), Record():\n            return _missing_default(reader, writer)",
        "        case Record(), Record():\n            if reader.name != writer.name:\n"
        "                return '', 'names'\n            return _missing_default(reader, writer)",
        _VERDICTS,
    ),
    Mistake(
        "one_branch_of_the_writer_is_enough",
        "data of the other branches of a union cannot be read",
        f"{_RULES}avro_resolution.py",
        "for branch in reversed(writer.branches))",
        "for branch in writer.branches[:1])",
        _VERDICTS,
    ),
    Mistake(
        "a_default_of_any_branch_is_valid",
        "a default that Java's clients cannot encode is stored",
        f"{_RULES}avro_defaults.py",
        'found = problem(default, branches[0], depth + 1) if branches else "the union has no branch"',
        'found = "" if any(not problem(default, each, depth + 1) for each in branches) else "no branch"',
        _VERDICTS,
    ),
    Mistake(
        "defaults_are_not_validated",
        "a first schema with a wrong default blocks every later one",
        f"{_RULES}checkers.py",
        "    if parsed.default_problem:",
        "    if False:",
        _VERDICTS,
    ),
    Mistake(
        "docs_and_aliases_make_another_schema",
        "a schema with another alias gets a version of its own",
        f"{_RULES}parsed_definitions.py",
        'return ("record", name, forms, properties)',
        'return ("record", name, forms, properties, [each.aliases for each in fields.values()])',
        _VERDICTS,
    ),
    Mistake(
        "sub_types_of_key_value_do_not_count",
        "readers decode keys by the type of another version",
        f"{_RULES}key_value.py",
        "    return key, value, properties.get(ENCODING, INLINE)",
        "    return '', '', properties.get(ENCODING, INLINE)",
        _VERDICTS,
    ),
    Mistake(
        "a_refusal_names_no_field",
        "users do not learn which field is refused",
        f"{_RULES}avro_resolution.py",
        'return f"{self.path}: {self.why}"',
        "return self.why",
        _REFUSALS,
    ),
)
