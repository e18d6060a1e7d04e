"""The column `value` in a frame that Spark reads itself, by Spark's own functions where they exist."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
import pyarrow.compute as pc
from magnetar.spark.rows.columns import TOPIC, VALUE
from magnetar.spark.rows.values import ValueDecoder, ValuePlan
from magnetar.spark.source.schema_versions import schemas_of
from magnetar.spark.source_options import SourceOptions
from pyspark.sql import functions as f
from pyspark.sql.pandas.functions import arrow_udf
from pyspark.sql.types import DataType, StructType

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import Column, DataFrame, SparkSession


def with_value(
    spark: SparkSession, stored: DataFrame, options: SourceOptions, values: ValuePlan
) -> DataFrame:
    """The frame with the column value behind its others."""
    payload = f.when(~f.col("null_value"), f.col("payload"))
    if values.kind == "string":
        value = _text(payload, strict=values.strict)
    elif values.kind == "json":
        schema: Any = values.ddl if values.type is None else values.type
        mode = "FAILFAST" if values.strict else "PERMISSIVE"
        value = f.from_json(_text(payload, strict=values.strict), schema, {"mode": mode})
    elif values.kind == "binary":
        value = payload
    else:
        value = _decoded(options, values, _type_of(spark, values))
    return stored.withColumn(VALUE, value)


def _text(payload: Column, *, strict: bool) -> Column:
    text = payload.cast("string")
    return f.validate_utf8(text) if strict else f.try_validate_utf8(text)


def _type_of(spark: SparkSession, values: ValuePlan) -> DataType:
    if values.type is not None:
        return values.type
    parsed = spark.createDataFrame([], f"`{VALUE}` {values.ddl}").schema
    assert isinstance(parsed, StructType), "a frame has a schema"
    return parsed[VALUE].dataType


def _decoded(options: SourceOptions, values: ValuePlan, kind: DataType) -> Column:
    decoders: dict[str, ValueDecoder] = {}

    def decoder_of(topic: str) -> ValueDecoder:
        if topic not in decoders:
            decoders[topic] = ValueDecoder(values, kind, schemas_of(options, topic))
        return decoders[topic]

    def decode(topic: pa.Array, payload: pa.Array, version: pa.Array, null: pa.Array) -> pa.Array:
        table = pa.table({"payload": payload, "schema_version": version, "null_value": null})
        return decoded_by_topic(topic, table, decoder_of)

    # Without annotations, as Spark looks at these and they are texts here.
    decode.__annotations__ = dict.fromkeys(("topic", "payload", "version", "null", "return"), pa.Array)
    udf = cast(Any, arrow_udf)(decode, kind)
    made: Column = udf(f.col(TOPIC), f.col("payload"), f.col("schema_version"), f.col("null_value"))
    return made


def decoded_by_topic(topics: Any, table: Any, decoder_of: Callable[[str], ValueDecoder]) -> Any:
    """Rows of several topics decoded, each with its topic's decoder: versions of schemas are of one topic."""
    names = pc.unique(topics).to_pylist()
    if len(names) <= 1:
        return decoder_of(names[0] if names else "").decode(table)
    rows = [pc.indices_nonzero(pc.equal(topics, name)) for name in names]
    values = [decoder_of(name).decode(table.take(at)) for name, at in zip(names, rows, strict=True)]
    return pa.concat_arrays(values).take(pc.sort_indices(pa.concat_arrays(rows)))
