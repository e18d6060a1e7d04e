"""One column type for all versions of a topic's schema.

The rules:

1. The newest version decides the order of fields; fields that only older versions have follow, those of newer
   versions first. Fields are matched by name. With Avro a field of an older version that the newest version's
   aliases name comes under its new name.
2. Numbers take the wider type: int and long make long, float and double make double, a whole number and a
   fraction make double. Text and bytes make text.
3. Structs, arrays and maps are merged member by member.
4. For all other differences the newest version's type stands. Older values that do not fit it are null, or an
   error if `value.errors` is fail.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any, Final

from magnetar.common.errors import InvalidSchema
from magnetar.common.schemas.avro_aliases import AliasCollision, renamed
from magnetar.common.schemas.avro_json import definition_of
from magnetar.common.schemas.parsed_definitions import parsed_definition
from magnetar.spark.rows.avro_types import parse_avro, type_of_avro
from magnetar.spark.source_options import BadOption
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    NullType,
    StringType,
    StructField,
    StructType,
)

_WHOLE: Final = (IntegerType, LongType)
_NUMBERS: Final = (*_WHOLE, FloatType, DoubleType)
_TEXTS: Final = (StringType, BinaryType)


def type_of_versions(definitions: Sequence[bytes], *, aliases: bool) -> DataType:
    """Returns the type of values of all versions, given newest first; `aliases` of the newest count, or not.

    Older versions that Spark has no type for are left out: their values are null. Raises BadOption for the
    newest one.
    """
    newest = definitions[0]
    kinds = [type_of_avro(parse_avro(newest))]
    for each in definitions[1:]:
        try:
            kinds.append(type_of_avro(under_aliases(each, newest) if aliases else parse_avro(each)))
        except BadOption:
            continue
    return reduce(merged_type, kinds)


def under_aliases(written: bytes, newest: bytes) -> Any:
    """Returns a version's definition under the names of the newest version, whose aliases rename it.

    The encoding of values does not depend on names, so values decode by it. A definition that the rules of
    schemas do not accept stays as it is. Raises BadOption for one that is not JSON.
    """
    try:
        aliases = parsed_definition(newest).aliases
        if aliases.types or aliases.fields:
            return definition_of(renamed(parsed_definition(written).root, aliases))
    except (InvalidSchema, AliasCollision):
        pass
    return parse_avro(written)


def merged_type(newer: DataType, older: DataType) -> DataType:
    """Returns the type of values of both types; the newer one stands where the two cannot be one."""
    if isinstance(newer, StructType) and isinstance(older, StructType):
        return _merged_struct(newer, older)
    if isinstance(newer, ArrayType) and isinstance(older, ArrayType):
        has_null = newer.containsNull or older.containsNull
        return ArrayType(merged_type(newer.elementType, older.elementType), has_null)
    if isinstance(newer, MapType) and isinstance(older, MapType):
        has_null = newer.valueContainsNull or older.valueContainsNull
        return MapType(newer.keyType, merged_type(newer.valueType, older.valueType), has_null)
    if isinstance(newer, NullType):
        return older
    if newer != older and isinstance(newer, _NUMBERS) and isinstance(older, _NUMBERS):
        are_whole = isinstance(newer, _WHOLE) and isinstance(older, _WHOLE)
        return LongType() if are_whole else DoubleType()
    if newer != older and isinstance(newer, _TEXTS) and isinstance(older, _TEXTS):
        return StringType()
    return newer


def _merged_struct(newer: StructType, older: StructType) -> StructType:
    others = {field.name: field for field in older.fields}
    fields = [
        StructField(field.name, merged_type(field.dataType, others[field.name].dataType))
        if field.name in others
        else field
        for field in newer.fields
    ]
    names = set(newer.fieldNames())
    return StructType([*fields, *(field for field in older.fields if field.name not in names)])
