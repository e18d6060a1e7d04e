"""`magnetar completion`: prints a shell completion script."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

_SHELLS = ("bash", "zsh", "fish")
VARIABLE = "_MAGNETAR_COMPLETE"
"""Environment variable that requests completions."""


@click.command()
@click.argument("shell", type=click.Choice(_SHELLS))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print a shell completion script for `magnetar`.

    \b
    bash: eval "$(magnetar completion bash)" in ~/.bashrc
    zsh:  eval "$(magnetar completion zsh)" in ~/.zshrc, after compinit
    fish: magnetar completion fish > ~/.config/fish/completions/magnetar.fish
    """
    kind = get_completion_class(shell)
    assert kind is not None, "click supports these shells"
    root = context.find_root().command
    click.echo(kind(root, {}, "magnetar", VARIABLE).source())
