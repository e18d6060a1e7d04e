"""A client is of use on its own loop and in its own process only, and says so."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
from multiprocessing.connection import Connection

import pytest
from magnetar.client.client import Client
from magnetar.client.errors import Forked, WrongLoop
from magnetar.client.home import Home


def test_a_client_is_created_inside_a_coroutine() -> None:
    with pytest.raises(WrongLoop, match="create the client inside a coroutine"):
        Client("pulsar://broker")


def test_another_loop_is_refused() -> None:
    async def made() -> Client:
        return Client("pulsar://broker")

    client = asyncio.run(made())

    async def used() -> None:
        for call in (
            client.create_producer("t"),
            client.subscribe("t", "s"),
            client.create_reader("t"),
            client.partitions("t"),
            client.topics("a/b/c"),
            client.close(),
        ):
            with pytest.raises(WrongLoop, match="belongs to another event loop"):
                await call
        with pytest.raises(WrongLoop):
            client.transaction()

    asyncio.run(used())


def test_without_a_loop_it_is_refused() -> None:
    async def made() -> Home:
        return Home()

    home = asyncio.run(made())
    with pytest.raises(WrongLoop):
        home.check()


def test_a_forked_process_is_refused_even_inside_the_loop() -> None:
    async def scenario() -> None:
        client = Client("pulsar://broker")
        read, write = os.pipe()
        child = os.fork()
        if not child:  # No loop runs here, although this is inside of one.
            try:
                client.parts.home.check()
            except Forked as error:
                os.write(write, str(error).encode())
            finally:
                os._exit(0)
        os.close(write)
        text = os.read(read, 1_000).decode()
        await asyncio.to_thread(os.waitpid, child, 0)
        os.close(read)
        assert f"created in process {os.getpid()} and is used in its fork {child}: " in text
        await client.close()

    asyncio.run(scenario())


def _use(home: Home, answer: Connection) -> None:
    async def used() -> str:
        try:
            home.check()
        except Forked as error:
            return str(error)
        return ""

    answer.send(asyncio.run(used()))
    answer.close()


def test_a_loop_in_a_forked_process_is_refused() -> None:
    async def made() -> Home:
        return Home()

    home = asyncio.run(made())
    here, there = multiprocessing.Pipe()
    process = multiprocessing.get_context("fork").Process(target=_use, args=(home, there))
    process.start()
    there.close()
    assert "create a client of its own after the fork" in here.recv()
    process.join()
    process.close()
    here.close()
