"""The benchmark commands work and print their figures; how high those are is not a test's business."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys

import pytest

from bench.delayed import Delayed
from bench.java_client import JavaProduce, client_jars
from bench.key_shared import TailKeyShared
from bench.loads import DrainTopics
from bench.random_acks import RandomAcks
from bench.target import Target
from tests.integration.harness import ROOT, Endpoint


def run_bench(module: str, *arguments: str) -> dict[str, float]:
    """The numbers that `python -m bench.<module>` printed, by name."""
    command = [sys.executable, "-m", f"bench.{module}", *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    print(done.stdout)
    found = re.findall(r"^  (\S.*?)  +([\d,.]+)$", done.stdout, re.MULTILINE)
    return {name: float(value.replace(",", "")) for name, value in found}


@pytest.mark.full
@pytest.mark.parametrize("batch", ["1", "10"])
def test_compaction_reports_both_runs_and_the_view(batch: str) -> None:
    figures = run_bench("compaction", "--only=magnetar", "--messages=3000", "--keys=300", f"--batch={batch}")
    assert 0 < figures["view, entries"] <= 300
    assert figures["first run, s"] > 0
    assert figures["second run, s"] > 0


@pytest.mark.parametrize("batch", ["1", "10"])
def test_produce_reports_rate_and_latency(endpoint: Endpoint, batch: str) -> None:
    figures = run_bench(
        "produce", "--against", endpoint.service_url, "--entries=5000", "--warmup=100", f"--batch={batch}"
    )
    assert figures["entries"] == 5_000
    assert figures["entries/s"] > 0
    assert 0 < figures["ack p50"] <= figures["ack p99"]


def test_produce_keeps_a_rate(endpoint: Endpoint) -> None:
    figures = run_bench("produce", "--against", endpoint.service_url, "--entries=500", "--rate=1000")
    assert figures["entries"] == 500
    assert 0 < figures["entries/s"] <= 1_100


def test_consume_drains_the_backlog(endpoint: Endpoint) -> None:
    figures = run_bench("consume", "--against", endpoint.service_url, "--entries=5000")
    assert figures["entries"] == 5_000
    assert figures["messages/s"] > 0


@pytest.mark.parametrize("acks", ["cumulative", "individual"])
def test_consuming_while_producing_takes_every_message(endpoint: Endpoint, acks: str) -> None:
    figures = run_bench("consume", "--against", endpoint.service_url, "--entries=5000", f"--tail={acks}")
    assert figures["entries"] == 5_000
    assert 0 < figures["end to end p50"] <= figures["end to end p99"]


def test_a_backlog_over_many_topics_is_drained_from_all_of_them(endpoint: Endpoint) -> None:
    load = DrainTopics(size=1_024, topics=20, entries_per_topic=150)
    figures = load(Target(endpoint.service_url)).figures
    assert figures["entries"] == 3_000
    assert figures["messages/s"] > 0


def test_consumers_of_a_key_shared_subscription_take_every_message_between_them(endpoint: Endpoint) -> None:
    load = TailKeyShared(size=100, keys=50, consumers=4, entries=3_000)
    figures = load(Target(endpoint.service_url)).figures
    assert figures["entries"] == 3_000
    assert 0.25 <= figures["largest share"] < 1


def test_messages_acknowledged_in_random_order_are_all_acknowledged(endpoint: Endpoint) -> None:
    figures = RandomAcks(5_000)(Target(endpoint.service_url)).figures
    assert figures["entries"] == 5_000
    assert figures["seconds"] > 0


@pytest.mark.full
def test_lateness_of_delayed_messages_is_told(endpoint: Endpoint) -> None:
    figures = Delayed(500, rate=1_000, lead_seconds=6.0)(Target(endpoint.service_url)).figures
    assert figures["entries"] == 500
    assert figures["earliest"] <= figures["lateness p50"] <= figures["lateness p99"] <= figures["latest"]


@pytest.mark.full
@pytest.mark.parametrize("batching", [False, True])
def test_apaches_java_client_publishes(endpoint: Endpoint, batching: bool) -> None:
    if isinstance(jars := client_jars(print), str):
        pytest.skip(f"no Java client: {jars}")
    load = JavaProduce(100, batching, seconds=0.5, warm_up_seconds=0.5, window=10)
    figures = load(Target(endpoint.service_url)).figures
    assert figures["entries"] > 0
    assert 0 < figures["ack p50"] <= figures["ack p99"]


@pytest.mark.full
@pytest.mark.usefixtures("our_contract")
def test_footprint_is_that_of_a_small_process() -> None:
    figures = run_bench("footprint", "--rounds=1", "--idle=1")
    assert figures["start to first acknowledged message s"] > 0
    assert 0 < figures["idle RSS MB"] < 150


@pytest.mark.full
@pytest.mark.usefixtures("our_contract")
def test_a_discovery_answers_lookups_and_carries_connections() -> None:
    figures = run_bench("discovery", "--connections=2", "--idle=50", "--seconds=0.5")
    assert figures["lookups/s"] > 0
    assert 0 < figures["one at a time p50 ms"] <= figures["one at a time p99 ms"]
    assert figures["RSS MB with 50 to a broker"] > 0
    assert figures["carried MB/s"] > 0


@pytest.mark.nightly
def test_a_run_without_apache_pulsar_says_so_and_judges_what_it_can() -> None:
    loads = ["rate-2000", "holes"]
    command = [sys.executable, "-m", "bench", "--quick", "--only", *loads, "java-batched"]
    bench = subprocess.Popen(
        command,
        cwd=ROOT,
        env={**os.environ, "PATH": ""},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        printed, errors = bench.communicate(timeout=240)
    except subprocess.TimeoutExpired:
        bench.terminate()  # unlike a kill, it takes the servers along
        printed, errors = bench.communicate(timeout=60)
    print(printed)
    assert bench.returncode == 0, errors
    assert "alone, without Apache Pulsar: there is no `java` here" in printed
    (path,) = re.findall(r"bench: results in (\S+)", printed)
    results = json.loads((ROOT / path).read_text())
    assert results["failures"] == []
    assert "The loads of Apache's Java client were left out: there is no `java` here." in results["notes"]
    assert set(loads) <= results["figures"].keys()
    assert results["figures"]["holes"]["holes"]["Magnetar"] == [50_000]
    assert re.search(r"lookup to first message .* floor (met|missed)", printed)
