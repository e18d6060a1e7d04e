"""`magnetar completion`: what a shell needs to complete commands, options and their values."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

_SHELLS = ("bash", "zsh", "fish")
VARIABLE = "_MAGNETAR_COMPLETE"
"""By which the shell tells the command that it is asked for completions."""


@click.command()
@click.argument("shell", type=click.Choice(_SHELLS))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print what makes a shell complete `magnetar`.

    \b
    bash: eval "$(magnetar completion bash)" in ~/.bashrc
    zsh:  eval "$(magnetar completion zsh)" in ~/.zshrc, after compinit
    fish: magnetar completion fish > ~/.config/fish/completions/magnetar.fish
    """
    kind = get_completion_class(shell)
    assert kind is not None, "one of those that click has"
    root = context.find_root().command
    click.echo(kind(root, {}, "magnetar", VARIABLE).source())
