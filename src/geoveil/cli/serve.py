"""``geoveil serve``, ``backup`` and ``tokens``: the collector, a copy of what it keeps, who operates it."""

from __future__ import annotations

import os
from contextlib import closing
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from geoveil.cli.console import Console
from geoveil.cli.options import Decorator, machine_options, together
from geoveil.errors import number_of
from geoveil.server.settings import KNOWN_S, SETTINGS, Setting, Tokens, load, variables_of_services
from geoveil.store import TokenRecord, open_store, open_to_copy, restore_backup, write_backup


def _option(setting: Setting) -> Decorator:
    """The flag of a setting of the service."""
    name = setting.flag
    shown = f"  [default: {setting.default}]" if setting.default not in ("", None) else ""
    if setting.type is bool:
        name += f"/--no-{name[2:]}"
    return click.option(
        name, setting.name, type=setting.type, default=None, help=setting.help + shown
    )


@click.command()
@click.option(
    "--config", type=click.Path(exists=True, dir_okay=False, path_type=Path), envvar="GEOVEIL_CONFIG",
    help="TOML file with settings; flags and environment win over it.",
)  # fmt: skip
@together(*map(_option, SETTINGS))
@machine_options
def command(config: Path | None, machine: bool, **flags: Any) -> None:
    """Collect reports: campaigns, rounds and estimates over HTTP.

    Every option up to --log-level is also an environment variable (GEOVEIL_LOG_LEVEL) and, but for
    --config, a key of the configuration file (log_level). What Kubernetes sets for a service named geoveil
    is ignored. TLS is the business of a proxy in front.
    """
    from geoveil.server.run import Started, serve

    settings = load(flags=flags, environment=os.environ, file=config)
    ignored = variables_of_services(os.environ)
    console = Console(machine=machine)

    def announce(started: Started) -> None:
        dashboard = f"{started.url}/" if started.pages else None
        values = {
            "url": started.url, "store": started.store, "operator_token": started.token,
            "ignored": ignored, "pages": started.pages, "dashboard": dashboard,
        }  # fmt: skip
        rows = {"serving": started.url, "store": started.store}
        if dashboard:
            rows["dashboard"] = f"{dashboard} (sign in with the operator's token)"
        if started.token:
            rows["operator token"] = f"{started.token} (shown this once; keep it)"
        if not started.pages:
            rows["pages"] = "not built: a campaign's link answers JSON (in a clone: make pages)"
        if ignored:
            rows["ignored"] = f"{', '.join(ignored)}: set by Kubernetes for its services"
        console.result(values, rows)

    serve(settings, announce)


@click.command()
@click.argument("source", metavar="STORE")
@click.argument("target", metavar="FILE")
@click.option("--restore", is_flag=True, help="The other way round: from FILE into an empty STORE.")
@machine_options
def backup(source: str, target: str, restore: bool, machine: bool) -> None:
    """Copy a STORE into a new FILE while the server goes on counting.

    STORE is sqlite:///path (or a path), or postgresql://…. FILE is a SQLite database with
    everything as of one moment; it is on the disk when the command ends, and nothing is ever
    overwritten. With --restore the FILE comes first and goes into an empty STORE of either kind, so
    this is also how a collection moves from one database to the other.

    \b
    geoveil backup sqlite:///counts.db monday.db
    geoveil backup --restore monday.db postgresql://geoveil@localhost/geoveil
    """
    if restore:
        contents = restore_backup(source, target)
    else:
        with closing(open_to_copy(source)) as store:
            contents = write_backup(store, target)
    action = "restored" if restore else "written"
    file = source if restore else target
    values = {action: file, **asdict(contents)}
    parts = f"{number_of(contents.campaigns, 'campaign')}, {number_of(contents.rounds, 'round')}"
    lines = {action: file, "holds": f"{number_of(contents.reports, 'report')} in {parts}"}
    Console(machine=machine).result(values, lines)


_SHOWN = 8
"""Digits of the SHA-256 of a token: enough to tell tokens apart, too few to find one."""


@click.command()
@click.argument("source", metavar="STORE")
@click.option("--take-back", metavar="SHA", help="End the token whose SHA-256 begins so.")
@machine_options
def tokens(source: str, take_back: str | None, machine: bool) -> None:
    """List the operators' tokens in a STORE, or take one back.

    Tokens are not kept, so none is shown: each is named by how its SHA-256 begins. That of a token you
    hold is the output of printf %s "$TOKEN" | sha256sum.

    A token that is taken back is refused within seconds, by services that run too. One that is started
    with it again adds it again, so take it out of GEOVEIL_OPERATOR_TOKEN and the configuration. Where no
    token is left, a start that is given none makes one and prints it.

    \b
    geoveil tokens sqlite:///geoveil.db
    geoveil tokens sqlite:///geoveil.db --take-back 5f2c81d0
    """
    store = open_store(source, create=False)
    try:
        ended = None if take_back is None else _described(Tokens(store).take_back(take_back))
        remaining = [_described(token) for token in store.tokens()]
    finally:
        store.close()
    lines = {entry["sha256"]: f"{entry['label']}, {entry['created_at']}" for entry in remaining}
    if ended is not None:
        words = f"{ended['sha256']}, refused within {KNOWN_S:g} seconds by services that run"
        lines = {"taken back": words, **lines}
    console = Console(machine=machine)
    console.result({"tokens": remaining, "taken_back": ended}, lines or {"tokens": "none"})
    if not remaining:
        console.note("nobody can operate; a start that is given no token makes one and prints it")


def _described(token: TokenRecord) -> dict[str, str]:
    created = datetime.fromtimestamp(token.created_at_s, UTC)
    return {
        "sha256": token.digest.hex()[:_SHOWN],
        "label": token.label,
        "created_at": f"{created:%Y-%m-%d %H:%M} UTC",
    }
