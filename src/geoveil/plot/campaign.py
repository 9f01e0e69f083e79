"""The curve of a campaign: its error by round, between the floor and knowing nothing."""

from __future__ import annotations

from typing import IO

from geoveil.collect.simulation import Simulation
from geoveil.errors import InvalidInput, require
from geoveil.plot.curves import COLOURS


def save_campaign(target: IO[bytes], kind: str, simulation: Simulation) -> None:
    """Write the curve as a picture of the given kind (png, svg or pdf), without a window."""
    if not simulation.rounds:
        raise InvalidInput("a campaign must have closed a round before its curve can be drawn")
    require("matplotlib", "plot", "drawing a campaign")
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    figure = Figure(figsize=(6.4, 4.0), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    rounds = [done.number for done in simulation.rounds]
    axes.axhline(simulation.start_km, color="0.6", linestyle=":", label="knowing nothing")
    axes.plot(rounds, [done.error_km for done in simulation.rounds], color=COLOURS[0], marker="o",
              markersize=3.5, label="estimate")  # fmt: skip
    best = [done.hindsight_km for done in simulation.rounds if done.hindsight_km is not None]
    if len(best) == len(rounds):
        axes.plot(rounds, best, color=COLOURS[2], linestyle="--", label="best stop in hindsight")
    axes.plot(rounds, [max(done.floor_km, 1e-6) for done in simulation.rounds], color="0.3",
              linestyle="-.", label="exact counts, no privacy")  # fmt: skip
    floor = min(done.error_km for done in simulation.rounds) / 30
    axes.set(xlabel="round", ylabel="earth mover's distance (km)", yscale="log")
    axes.set_ylim(bottom=floor)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.legend(fontsize=8)
    figure.savefig(target, format=kind, dpi=130)
