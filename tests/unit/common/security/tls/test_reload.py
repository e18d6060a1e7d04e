"""Changed files are loaded all together, or the former ones stay in use and the log and a metric tell."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from datetime import timedelta
from pathlib import Path

import pytest
from magnetar.common.security.certificates import Authority
from magnetar.common.security.tls.certificate_times import certificates_in, not_after
from magnetar.common.security.tls.reload import EXPIRY, RELOADS, TlsReload
from magnetar.common.security.tls.server_context import ServerTls

from tests.unit.common.security.tls.peers import Files


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


def reloads() -> tuple[float, float]:
    return RELOADS.labels("ok")._value.get(), RELOADS.labels("failed")._value.get()


def test_a_certificate_without_its_key_waits_for_it_and_is_told_once(
    files: Files, capsys: pytest.CaptureFixture[str]
) -> None:
    async def body() -> None:
        server = ServerTls(files.config)
        reload = TlsReload([server], 0)
        ok, failed = reloads()
        leaf = files.authority.issue("new")
        (files.directory / "server.pem").write_bytes(leaf.certificate)
        for _ in range(3):
            await reload.look()
        assert server.generation == 1
        assert reloads() == (ok, failed + 1)
        (files.directory / "server.key").write_bytes(leaf.key)
        await reload.look()
        await reload.look()
        assert server.generation == 2
        assert reloads() == (ok + 1, failed + 1)

    asyncio.run(body())
    assert capsys.readouterr().out.count("the former stay") == 1


def test_a_swapped_link_is_a_change(files: Files, tmp_path: Path) -> None:
    """Kubernetes swaps a link to a directory; the names of the files stay."""

    async def body() -> None:
        (tmp_path / "one").mkdir()
        mounted = tmp_path / "mounted"
        mounted.mkdir()
        for name in ("server.pem", "server.key", "trust.pem"):
            (tmp_path / name).rename(tmp_path / "one" / name)
            (mounted / name).symlink_to(Path("..data") / name)
        (mounted / "..data").symlink_to(tmp_path / "one")
        files.directory = mounted
        server = ServerTls(files.config)
        reload = TlsReload([server], 0)
        await reload.look()
        assert server.generation == 1
        (tmp_path / "two").mkdir()
        Files(tmp_path / "two")
        (mounted / "..next").symlink_to(tmp_path / "two")
        (mounted / "..next").rename(mounted / "..data")
        await reload.look()
        assert server.generation == 2

    asyncio.run(body())


@pytest.mark.parametrize("interval_s", [0, 0.05])
def test_files_are_looked_at_by_time_and_at_sighup(files: Files, interval_s: float) -> None:
    async def body() -> None:
        server = ServerTls(files.config)
        reload = TlsReload([server], interval_s)
        reload.start()
        try:
            files.serve(files.authority.issue("new"))
            if interval_s == 0:
                await asyncio.sleep(0.2)
                assert server.generation == 1
                os.kill(os.getpid(), signal.SIGHUP)
            async with asyncio.timeout(20):
                while server.generation == 1:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
        finally:
            await reload.close()
            await reload.close()

    asyncio.run(body())
    assert signal.getsignal(signal.SIGHUP) is signal.SIG_DFL


def test_expiry_is_shown_and_warned_of_once_a_day(files: Files, capsys: pytest.CaptureFixture[str]) -> None:
    async def body() -> None:
        files.serve(files.authority.issue("soon", lifetime=timedelta(days=13)))
        reload = TlsReload([ServerTls(files.config)], 0)
        await reload.look()
        await reload.look()

    asyncio.run(body())
    path = files.config.certificate_file
    assert EXPIRY.labels(path)._value.get() == 0  # replaced by a function
    [value] = [
        sample.value
        for metric in EXPIRY.collect()
        for sample in metric.samples
        if sample.labels == {"file": path}
    ]
    assert 12.9 * 86_400 < value < 13 * 86_400
    told = capsys.readouterr().out
    assert told.count("a certificate expires soon") == 1
    assert "days_left=13" in told


def test_validity_is_read_of_any_certificate(tmp_path: Path) -> None:
    authority = Authority("a", days=40_000)
    (tmp_path / "two.pem").write_bytes(authority.issue_v1("old").certificate + authority.certificate)
    first, second = map(not_after, certificates_in(tmp_path / "two.pem"))
    assert abs(first - time.time() - 90 * 86_400) < 60
    assert abs(second - time.time() - 40_000 * 86_400) < 60  # beyond 2049: a GeneralizedTime


@pytest.mark.parametrize("der", [b"", b"\x30", b"\x30\x03\x02\x01\x00", b"\x30\x82\xff\xff"])
def test_what_is_no_certificate_is_refused(der: bytes) -> None:
    with pytest.raises(ValueError, match=r"no X\.509"):
        not_after(der)


def test_a_file_that_breaks_off_is_refused(tmp_path: Path) -> None:
    (tmp_path / "half.pem").write_bytes(Authority("a").certificate[:100])
    with pytest.raises(ValueError, match="breaks off"):
        certificates_in(tmp_path / "half.pem")
