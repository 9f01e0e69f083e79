"""``geoveil completion``: the script that lets a shell complete commands and options."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def command(context: click.Context, shell: str) -> None:
    """Print the completion script of a shell.

    \b
    eval "$(geoveil completion bash)"       # in ~/.bashrc; zsh likewise
    geoveil completion fish | source        # in config.fish
    """
    kind = get_completion_class(shell)
    if kind is None:  # the choice above names what click has
        raise click.UsageError(f"no completion for {shell}", context)
    click.echo(kind(context.find_root().command, {}, "geoveil", "_GEOVEIL_COMPLETE").source())
