"""``geoveil demo``: the whole loop on a simulated city."""

from __future__ import annotations

import os
import sys
import threading
import webbrowser
from base64 import urlsafe_b64encode
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

import click
import numpy as np
from rich.markup import escape

import geoveil as gv
from geoveil.arrays import FloatArray
from geoveil.channel.words import rounded_up
from geoveil.cli.console import Console, Screen, columns_of_numbers
from geoveil.cli.options import machine_options
from geoveil.demo.city import City, draw
from geoveil.demo.story import LocalCollector, Story, tell
from geoveil.errors import number_of, percent, require
from geoveil.files import replaced_file
from geoveil.randomness import SYSTEM
from geoveil.table.results import estimate_result, write_result

_NEEDED = (("matplotlib", "plot", None), ("ot", "transport", "POT"), ("uvicorn", "server", None))


@click.command()
@click.option(
    "--once", is_flag=True,
    help="End after the summary, as without a terminal or where CI is set; else the collector goes on.",
)  # fmt: skip
@click.option("--people", type=click.IntRange(min=100), default=100_000, show_default=True)
@click.option("--epsilon-per-km", type=float, default=2.0, show_default=True)
@click.option("--camouflage", type=click.FloatRange(0, 1), default=0.5, show_default=True)
@click.option("--rounds", type=click.IntRange(min=1, max=50), default=5, show_default=True)
@click.option("--seed", type=click.IntRange(min=0), help="Repeat the very same noise as well.")
@click.option(
    "--output", default="out/demo", show_default=True, metavar="FOLDER", help="Where results go."
)
@machine_options
@click.pass_context
def command(
    context: click.Context, /, once: bool, seed: int | None, output: str, machine: bool, **options: Any
) -> None:  # fmt: skip
    """Simulate a city, collect it in rounds through a real collector, bring the map back.

    Everybody reports once, to a server on this machine; each round's mechanism is shaped by the estimate
    before it. Needs no data. Leaves a picture, the last mechanism document and the estimate as GeoJSON.
    """
    for module, extra, package in _NEEDED:
        require(module, extra, "the demo", package)
    console = Console(machine=machine)
    randomness = SYSTEM if seed is None else gv.seeded(seed)
    on_terminal = sys.stdout is not None and sys.stdout.isatty()
    stays = not (once or machine or os.environ.get("CI") or not on_terminal)
    folder = Path(output)
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / "collector.log"
    with LocalCollector(log) as collector:

        def begun(city: City, link: str) -> None:
            address = dashboard_address(collector, city, link)
            opened = open_browser(address)
            where = "the dashboard is open in your browser" if opened else "watch it in a browser"
            console.note(f"{where}: {address}")
            console.note(f"take part yourself, from another tab: {link}")

        with console.progress("simulating a city") as progress:
            story = tell(
                collector,
                randomness=randomness,
                stage=progress.stage,
                begun=begun if stays and collector.pages else None,
                **options,
            )
            progress.stage("drawing the picture")
            files = _save(story, folder)
        console.result(_values(story, files), lambda screen: _show(screen, story, files))
        if collector.troubled:
            console.note(f"what the collector could not do, or not in time, stands in {log}")
        if story.problem:
            console.warn(f"{story.problem}; this is what the rounds before it gave")
            context.exit(1)
        if stays:
            console.note(f"the collector goes on at {collector.url}; Ctrl-C ends it")
            with suppress(KeyboardInterrupt):  # Ctrl-C ends the demo in order
                threading.Event().wait()


# --- What is handed to the dashboard, in the part of the address that no browser sends to a server

_MOST = 65_535


def dashboard_address(collector: LocalCollector, city: City, link: str) -> str:
    """The dashboard of a running demo: signed in, with the simulated truth beside the estimate.

    The truth stands behind ``#``: the collector never receives it.
    """
    campaign, truth = urlsplit(link).path.rsplit("/", 1)[-1], packed(city.distribution)
    handed = {"campaign": campaign, "token": collector.token, "simulated": truth}
    return f"{collector.url}/#/?{urlencode(handed)}"


def packed(shares: FloatArray) -> str:
    """Shares as 16-bit numbers, the largest 65,535, little-endian, in base64 for addresses.

    >>> packed(np.array([0.0, 0.5, 0.5]))
    'AAD_____'
    """
    whole = np.rint(shares / shares.max() * _MOST).astype("<u2")
    return urlsafe_b64encode(whole.tobytes()).decode().rstrip("=")


def open_browser(address: str) -> bool:
    """Show an address in a browser with a window of its own; ``False`` where there is no screen for one."""
    screen = sys.platform in ("darwin", "win32") or any(
        os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY")
    )
    return screen and webbrowser.open(address)


def _save(story: Story, folder: Path) -> dict[str, str]:
    """Picture, mechanism and estimate, each under its own name."""
    names = {"picture": "city.png", "mechanism": "mechanism.json", "estimate": "estimate.geojson"}
    files = {kind: str(folder / name) for kind, name in names.items()}
    with replaced_file(files["picture"]) as sink:
        draw(story).savefig(sink, format="png")
    gv.save_mechanism(story.mechanism, files["mechanism"])
    cells = story.estimate.space.size
    counts = np.bincount(story.reports, minlength=cells)[:cells]
    write_result(files["estimate"], replace(estimate_result(story.estimate), reports=counts))
    return files


def _values(story: Story, files: dict[str, str]) -> dict[str, Any]:
    certificate, audit = story.certificate, story.audit
    return {
        "people": story.people,
        "devices": story.devices,
        "epsilon_per_km": story.epsilon_per_km,
        "explanation": story.promise,
        "spent": story.spent,
        "certificate": {"holds": certificate.holds, "epsilon_per_km": certificate.epsilon_per_km},
        "audit": {"passed": audit.passed, "findings": list(audit.findings)},
        "mean_distance_km": story.mean_distance_km,
        "reported_error_km": story.reported_error_km,
        "estimated_error_km": story.estimated_error_km,
        "estimate_stopped": story.estimate.stopped,
        "rounds": [
            {
                "round": one.number,
                "certified_epsilon_per_km": one.certificate.epsilon_per_km,
                "mean_distance_km": one.mean_distance_km,
                "leakage_bits": one.leakage_bits,
                "estimated_error_km": one.estimated_error_km,
            }
            for one in story.rounds
        ],
        "districts": [asdict(district) for district in story.districts()],
        "files": files,
    }


def _show(screen: Screen, story: Story, files: dict[str, str]) -> None:
    verdict = "[green]holds[/]" if story.certificate.holds else "[red]DOES NOT HOLD[/]"
    rounds = columns_of_numbers(
        ("round", "certified ε per km", "report off by", "leaks", "map off by"), indent=2
    )
    for one in story.rounds:
        rounds.add_row(
            str(one.number), rounded_up(one.certificate.epsilon_per_km, 5),
            f"{one.mean_distance_km:.2f} km", f"{one.leakage_bits:.2f} bits",
            f"[bold]{one.estimated_error_km * 1000:.0f} m[/]",
        )  # fmt: skip
    districts = columns_of_numbers(
        ("true", "reported", "reconstructed", "95 % interval"), first="district", indent=2
    )
    for place in story.districts():
        low, high = place.interval
        districts.add_row(
            place.name, percent(place.true_share, 1), percent(place.reported_share, 1),
            f"[bold]{percent(place.estimated_share, 1)}[/]", f"{percent(low, 1)} – {percent(high, 1)}",
        )  # fmt: skip
    picture, mechanism, estimate = map(escape, files.values())
    screen.print(
        f"\n[bold]{story.people:,} people[/] of a simulated city reported one noisy cell each, in "
        f"{number_of(len(story.rounds), 'round')}, to a collector on this machine; {story.devices} of them "
        "through a device with a ledger of its own.\n"
        f"  {story.promise} A report is [bold]{story.mean_distance_km:.2f} km[/] from its person on "
        "average.\n"
        f"  The promise between any two positions, {story.guarantee.amount()} for each report, {verdict} in "
        "every round: certified from the integers drawn from, over all positions, ε is at most "
        f"{rounded_up(story.certificate.epsilon_per_km, 7)}. {story.spent}\n"
        f"  Audit of the sampler: {story.audit}.\n"
        f"  The map of reports is {story.reported_error_km * 1000:.0f} m from the truth; the "
        f"reconstructed one [bold]{story.estimated_error_km * 1000:.0f} m[/] (earth mover's distance).\n"
    )
    screen.print(rounds, "", districts, sep="\n")
    screen.print(
        f"\n  picture    [cyan]{picture}[/]\n"
        f"  mechanism  {mechanism}   (geoveil audit {mechanism})\n"
        f"  estimate   {estimate}"
    )
