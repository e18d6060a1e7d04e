"""Verdicts against Apache Avro's resolving decoder in Java, on random definitions.

`python -m pytest tests/property/schemas/test_java_decoder.py` compares 1,000 pairs; MAGNETAR_AVRO_PAIRS sets
another number. The classes are Spark's, Avro 1.12. MAGNETAR_AVRO_JAR names another jar: with that of 1.11.4,
which Pulsar 4.0.7 has, damaged definitions are compared, too. Parsers of the two differ.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any, Final

import pyspark
import pytest
from magnetar.common.errors import IncompatibleSchema, InvalidSchema
from magnetar.common.schemas.avro_resolution import PairBudget, misfit_of
from magnetar.common.schemas.parsed_definitions import parsed_definition

from tests.property.schemas.definitions import damaged, evolved, random_definition

OWN_JAR: Final = os.environ.get("MAGNETAR_AVRO_JAR", "")
SOURCE: Final = Path(__file__).with_name("ReadableDefinitions.java")
PAIRS: Final = int(os.environ.get("MAGNETAR_AVRO_PAIRS", "1000"))


@pytest.mark.full
@pytest.mark.skipif(shutil.which("javac") is None, reason="no Java compiler (javac) on the PATH")
def test_javas_decoder_gives_the_same_verdicts() -> None:
    pairs = [_pair(random.Random(seed)) for seed in range(PAIRS)]
    verdicts = _verdicts_of_java(pairs)
    assert len(verdicts) == len(pairs)
    counts: Counter[str] = Counter()
    for (reader, writer), java in zip(pairs, verdicts, strict=True):
        # Records that hold themselves directly overflow Java's stack: no data has such a type. And Avro 1.12
        # refuses references that 1.11 takes.
        if java == "error" or (java == "invalid" and not OWN_JAR):
            continue
        counts[java] += 1
        assert _verdict(reader, writer) == java, (reader, writer)
    expected = ("readable equal", "readable different", "unreadable different")
    assert all(counts[each] > PAIRS // 20 for each in (*expected, "invalid" if OWN_JAR else expected[0]))


def _pair(rng: random.Random) -> tuple[str, str]:
    definition = random_definition(rng)
    change = damaged if OWN_JAR and rng.random() < 0.3 else evolved
    return json.dumps(change(rng, definition)), json.dumps(definition)


def _verdict(reader: str, writer: str) -> str:
    try:
        read, written = (parsed_definition(each.encode()) for each in (reader, writer))
    except InvalidSchema:
        return "invalid"
    if read.digest == written.digest:
        return "readable equal"
    try:
        found: Any = misfit_of(read, written, PairBudget())
    except IncompatibleSchema as error:
        found = error
    return "unreadable different" if found else "readable different"


def _verdicts_of_java(pairs: list[tuple[str, str]]) -> list[str]:
    jars = f"{Path(pyspark.__file__).parent / 'jars'}/*"
    done = subprocess.run(
        ["java", "-cp", f"{OWN_JAR}:{jars}" if OWN_JAR else jars, str(SOURCE)],
        input="".join(f"{reader}\t{writer}\n" for reader, writer in pairs),
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()
