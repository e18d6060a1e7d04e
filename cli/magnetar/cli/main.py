"""The `magnetar` command. Each command is imported on first use, so that others start quickly."""

from __future__ import annotations

import click
from magnetar.cli.command_line import CommandLine


@click.group(cls=CommandLine, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="magnetar-cli", prog_name="magnetar")
def main() -> None:
    """Magnetar: publish-subscribe messaging, wire-compatible with Apache Pulsar."""


@main.lazily
def bookie() -> click.Command:
    _use_compiled_modules()
    from magnetar.cli.servers.commands import bookie

    return bookie


@main.lazily
def broker() -> click.Command:
    _use_compiled_modules()
    from magnetar.cli.servers.commands import broker

    return broker


@main.lazily
def console() -> click.Command:
    from magnetar.cli.servers.commands import console

    return console


@main.lazily
def discovery() -> click.Command:
    _use_compiled_modules()
    from magnetar.cli.servers.commands import discovery

    return discovery


@main.lazily
def standalone() -> click.Command:
    _use_compiled_modules()
    from magnetar.cli.servers.commands import standalone

    return standalone


@main.lazily
def admin() -> click.Command:
    from magnetar.cli.admin.command import admin

    return admin


@main.lazily
def completion() -> click.Command:
    from magnetar.cli.completion import completion

    return completion


@main.lazily
def consume() -> click.Command:
    from magnetar.cli.client.consume import consume

    return consume


@main.lazily
def context() -> click.Command:
    from magnetar.cli.context import context

    return context


@main.lazily
def debug() -> click.Command:
    from magnetar.cli.debug.command import debug

    return debug


@main.lazily
def dev_certs() -> click.Command:
    from magnetar.cli.dev_certs import dev_certs

    return dev_certs


@main.lazily
def doctor() -> click.Command:
    from magnetar.cli.doctor.command import doctor

    return doctor


@main.lazily
def explain() -> click.Command:
    from magnetar.cli.admin.explain import explain
    from magnetar.cli.admin.explain_clients import clients, connection
    from magnetar.cli.admin.explain_cluster import COMMANDS

    for command in (clients, connection, *COMMANDS):
        explain.add_command(command)
    return explain


@main.lazily
def find() -> click.Command:
    from magnetar.cli.search.find import find

    return find


@main.lazily
def lag() -> click.Command:
    from magnetar.cli.lag import lag

    return lag


@main.lazily
def offload() -> click.Command:
    from magnetar.cli.jobs.offload import offload

    return offload


@main.lazily
def perf() -> click.Command:
    from magnetar.cli.client.perf.commands import perf

    return perf


@main.lazily
def produce() -> click.Command:
    from magnetar.cli.client.produce import produce

    return produce


@main.lazily
def spark() -> click.Command:
    from magnetar.cli.jobs.spark import spark

    return spark


@main.lazily
def tokens() -> click.Command:
    from magnetar.cli.tokens import tokens

    return tokens


@main.lazily
def top() -> click.Command:
    from magnetar.cli.top.command import top

    return top


@main.lazily
def topics() -> click.Command:
    from magnetar.cli.search.topics import topics

    return topics


def _use_compiled_modules() -> None:
    """Run compiled modules where they fit: in servers only, so that other commands need not look for them."""
    from magnetar.common.runtime import speedups

    speedups.activate()
