"""A broker of prepared answers on a loopback port, in a thread of its own: commands run a loop themselves."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from magnetar.common.errors import ProtocolError
from magnetar.common.wire import commands
from magnetar.common.wire.command_parser import command_field
from magnetar.common.wire.frame import FrameDecoder, encode_command
from magnetar.common.wire.pulsar_pb2 import BaseCommand, CommandSendReceipt, MessageIdData

Answers = dict[str, Callable[[Any], bytes]]
"""Bytes by the field of the command; a command without an answer stays unanswered."""


def receipt(command: Any) -> bytes:
    """The receipt of a Send."""
    at = MessageIdData(ledgerId=1, entryId=command.sequence_id)
    sent = CommandSendReceipt(producer_id=command.producer_id, sequence_id=command.sequence_id, message_id=at)
    return encode_command(BaseCommand(type=BaseCommand.SEND_RECEIPT, send_receipt=sent))


@contextmanager
def broker_stub(**changed: Callable[[Any], bytes]) -> Iterator[str]:
    """Runs the broker and yields its service URL. `changed`: answers by field, instead of those of a broker
    with one healthy topic.
    """
    listener = socket.create_server(("127.0.0.1", 0))
    url = f"pulsar://127.0.0.1:{listener.getsockname()[1]}"
    answers: Answers = {
        "connect": lambda _: commands.connected("test", 20, 5_000_000),
        "partitionMetadata": lambda command: commands.partition_metadata(command.request_id, 0),
        "lookupTopic": lambda command: commands.lookup_connect(command.request_id, url),
        "producer": lambda command: commands.producer_success(command.request_id, "stub"),
        "subscribe": lambda command: commands.success(command.request_id),
        "close_producer": lambda command: commands.success(command.request_id),
        "close_consumer": lambda command: commands.success(command.request_id),
        "send": receipt,
        **changed,
    }
    accepted: list[socket.socket] = []

    def serve() -> None:
        while True:
            try:
                one, _ = listener.accept()
            except OSError:
                return
            accepted.append(one)
            threading.Thread(target=_answer, args=(one, answers), daemon=True).start()

    threading.Thread(target=serve, daemon=True).start()
    try:
        yield url
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        for one in accepted:
            one.close()


def _answer(one: socket.socket, answers: Answers) -> None:
    decoder = FrameDecoder()
    try:
        while data := one.recv(65_536):
            for frame in decoder.receive_data(data):
                field = command_field(frame.command)
                if field in answers:
                    one.sendall(answers[field](getattr(frame.command, field)))
    except OSError:
        return
    except ProtocolError:
        one.close()
