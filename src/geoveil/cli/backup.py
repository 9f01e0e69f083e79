"""``geoveil backup``: the whole of a store in one file, and back."""

from __future__ import annotations

from dataclasses import asdict

import click
from rich.console import Console as RichConsole

from geoveil.cli.console import Console, two_columns
from geoveil.cli.options import machine_options
from geoveil.store import Contents, open_store, restore_backup, write_backup


@click.command()
@click.argument("source", metavar="STORE")
@click.argument("target", metavar="FILE")
@click.option("--restore", is_flag=True, help="The other way round: from FILE into an empty STORE.")
@machine_options
def command(source: str, target: str, restore: bool, machine: bool) -> None:
    """Copy a STORE into a new FILE while the server goes on counting.

    STORE is sqlite:///path (or a path), or postgresql://…. FILE is a SQLite database with
    everything as of one moment; it is on the disk when the command ends, and nothing is ever
    overwritten. With --restore the FILE comes first and goes into an empty STORE of either kind, so
    this is also how a collection moves from one database to the other.

    \b
    geoveil backup sqlite:///counts.db monday.db
    geoveil backup --restore monday.db postgresql://geoveil@localhost/geoveil
    """
    store = open_store(target if restore else source, create=restore)
    try:
        contents = restore_backup(source, store) if restore else write_backup(store, target)
    finally:
        store.close()
    done = "restored" if restore else "written"
    file = source if restore else target
    values = {done: file, **asdict(contents)}
    Console(machine=machine).result(values, lambda screen: _show(screen, done, file, contents))


def _show(screen: RichConsole, done: str, file: str, contents: Contents) -> None:
    parts = f"{contents.campaigns:,} campaigns, {contents.rounds:,} rounds"
    screen.print(two_columns({done: file, "holds": f"{contents.reports:,} reports in {parts}"}))
