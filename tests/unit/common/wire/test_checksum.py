from __future__ import annotations

from magnetar.common.wire.checksum import COPY_BYTES_MAX, crc32c, crc32c_from


def test_the_checksum_is_castagnoli_s() -> None:
    assert crc32c(b"123456789") == 0xE3069283


def test_small_and_large_data_are_checked_alike_from_the_start_given() -> None:
    for size in (0, 1, COPY_BYTES_MAX, COPY_BYTES_MAX + 1, 100_000):
        data = b"header" + bytes(size)
        assert crc32c_from(data, 6) == crc32c(bytes(size))
