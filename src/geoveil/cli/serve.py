"""``geoveil serve``: the collection service."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import click

from geoveil.cli.console import Console, two_columns
from geoveil.cli.options import Command, machine_options
from geoveil.server.settings import SETTINGS, Setting, load, variables_of_services


def setting_options(command: Command) -> Command:
    """A flag for every setting of the service."""
    for each in reversed(SETTINGS):
        command = _option(each)(command)
    return command


def _option(setting: Setting) -> Any:
    name = setting.flag
    shown = f"  [default: {setting.default}]" if setting.default not in ("", None) else ""
    if setting.type is bool:
        name += f"/--no-{name[2:]}"
    return click.option(
        name, setting.name, type=setting.type, default=None, help=setting.help + shown
    )


@click.command()
@click.option(
    "--config",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    envvar="GEOVEIL_CONFIG",
    help="TOML file with settings; flags and environment win over it.",
)
@setting_options
@machine_options
def command(config: Path | None, machine: bool, **flags: Any) -> None:
    """Collect reports: campaigns, rounds and estimates over HTTP.

    Every option is also an environment variable (--log-level is GEOVEIL_LOG_LEVEL) and a key of the
    configuration file (log_level). What Kubernetes sets for a service named geoveil is ignored. TLS is
    the business of a proxy in front.
    """
    from geoveil.server.run import Started, serve

    settings = load(flags=flags, environment=os.environ, file=config)
    ignored = variables_of_services(os.environ)
    console = Console(machine=machine)

    def announce(started: Started) -> None:
        values = {
            "url": started.url, "store": started.store, "operator_token": started.token,
            "ignored": ignored,
        }  # fmt: skip
        rows = {"serving": started.url, "store": started.store}
        if started.token:
            rows["operator token"] = f"{started.token} (shown this once; keep it)"
        if ignored:
            rows["ignored"] = f"{', '.join(ignored)}: set by Kubernetes for its services"
        console.result(values, lambda screen: screen.print(two_columns(rows)))
        sys.stdout.flush()

    serve(settings, announce)
