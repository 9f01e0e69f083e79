"""Small pages for notebooks: a table of what there is to say, and a small map where there is one.

Everything that is not ours to write is escaped: a file may have said it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import singledispatch
from html import escape

import numpy as np

from geoveil.arrays import FloatArray
from geoveil.campaign.advice import Advice, Choice
from geoveil.channel.certificate import Certificate
from geoveil.channel.channel import Channel, Tally
from geoveil.channel.words import NEARBY_KM
from geoveil.errors import GeoveilError, number_of, percent
from geoveil.estimate.fitted import Estimate
from geoveil.plot.maps import quiet_colours, round_length
from geoveil.space.space import MATRIX_LIMIT, MapSpace, Space
from geoveil.table.frames import columns_of

_ACROSS = 64
"""A small map has at most so many places along its longer side; finer ones are put together."""
_WIDTH = 320.0
_LEAST_HEIGHT = 24.0
_COLOURS = [
    "#" + "".join(f"{round(255 * part):02x}" for part in colour) for colour in quiet_colours(64)
]


@singledispatch
def page_of(thing: object) -> str:
    """The page of a result as HTML, without scripts or anything from elsewhere."""
    return f"<pre>{escape(repr(thing))}</pre>"


@page_of.register
def _page_of_space(thing: Space) -> str:
    about = {"cells": f"{thing.size:,}", "space": repr(thing)}
    return _page(type(thing).__name__, about, small_map(thing, np.full(thing.size, 0.3), top=1.0))


@page_of.register
def _page_of_channel(thing: Channel) -> str:
    about = {
        "space": repr(thing.space),
        "reports": f"{thing.report_count:,}" if thing.report_count < 1e12 else "bit vectors",
        "promise": thing.short_promise,
    }
    if not thing.promise_takes_long:
        about["which means"] = thing.explain(NEARBY_KM)
    picture, size = "", thing.space.size
    if size <= MATRIX_LIMIT and size <= thing.report_count <= 4 * MATRIX_LIMIT:
        centres = thing.space.centres
        from_middle = centres - (centres.min(axis=0) + centres.max(axis=0)) / 2
        middle = int(np.argmin(np.square(from_middle).sum(axis=1)))
        picture = small_map(thing.space, thing.row(middle)[:size])
    if picture:
        about["picture"] = f"where the reports of somebody in cell {middle} go"
    return _page(type(thing).__name__, about, picture)


@page_of.register
def _page_of_tally(thing: Tally) -> str:
    about = {
        "reports": f"{thing.total:,}",
        "mechanism": repr(thing.channel),
        "promise": thing.channel.short_promise,
    }
    try:
        reports = np.asarray(columns_of(thing)["reports"], dtype=np.float64)
    except GeoveilError:
        return _page("Tally", about, "")
    beside = thing.total - int(reports.sum())
    if beside > 0:
        names = number_of(beside, "report names", "reports name")
        about["beside the map"] = f"{names} no cell of it"
    total = max(thing.total, 1)
    return _page("Tally", about, small_map(thing.space, reports / total))


@page_of.register
def _page_of_estimate(thing: Estimate) -> str:
    fullest = np.argsort(-thing.distribution, kind="stable")[:3].tolist()
    about = {
        "reports": f"{thing.total:,}",
        "cells": f"{thing.space.size:,}",
        "promise": "; ".join(thing.promises) or "not known",
        "fullest cells": ", ".join(f"{cell}: {percent(thing.distribution[cell])}" for cell in fullest),
        "stopped": thing.stopped,
    }  # fmt: skip
    return _page("Estimate", about, small_map(thing.space, thing.distribution))


@page_of.register
def _page_of_certificate(thing: Certificate) -> str:
    claimed = "nothing" if thing.claimed is None else thing.claimed.sentence(thing.unit)
    about = {
        "claimed": claimed,
        "verdict": thing.verdict + (f": {thing.problem}" if thing.problem else ""),
        "found": f"{thing.found} ({'exact' if thing.exact else 'an upper bound'}), by {thing.how}",
    }
    if thing.worst_pair is not None:
        about["worst pair"] = f"cells {thing.worst_pair[0]} and {thing.worst_pair[1]}"
    return _page("Certificate", about, "")


_ADVISED: dict[str, Callable[[Choice], str]] = {
    "setting": lambda choice: choice.name,
    "mean distance": lambda choice: f"{choice.mean_distance_km:.3g} km",
    "leakage": lambda choice: f"{choice.leakage_bits:.3g} bits",
    "error of the map": lambda choice: f"{choice.expected_error_km:.3g} km",
    "belief in the isolated place": lambda choice: f"{choice.isolated_posterior:.2f}",
    "leverage": lambda choice: f"{choice.leverage:.3g}",
}


@page_of.register
def _page_of_advice(thing: Advice) -> str:
    head = "".join(f"<th>{escape(name)}</th>" for name in _ADVISED)
    rows = []
    for choice in thing.choices:
        cells = "".join(f"<td>{escape(show(choice))}</td>" for show in _ADVISED.values())
        best = ' style="font-weight:bold"' if choice is thing.recommended else ""
        rows.append(f"<tr{best}>{cells}</tr>")
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>"
    return f"<div><p>{escape(thing.sentence())}</p>{table}</div>"


def _page(title: str, about: Mapping[str, str], picture: str) -> str:
    rows = "".join(
        f'<tr><th style="text-align:left;vertical-align:top">{escape(name)}</th>'
        f'<td style="text-align:left">{escape(value)}</td></tr>'
        for name, value in about.items()
    )
    table = f"<table><caption>{escape(title)}</caption><tbody>{rows}</tbody></table>"
    return f"<div>{picture}{table}</div>"


def small_map(space: Space, values: FloatArray, *, top: float | None = None) -> str:
    """Values by cell as an inline picture (SVG): darker is more, on a square-root scale.

    Large maps are drawn in larger places, the values in each added up. Cells on a line are bars;
    what is neither has no picture.
    """
    shares = np.asarray(values, dtype=np.float64)
    if space.centres.shape[1] == 1:
        return _bars(shares)
    if not isinstance(space, MapSpace):
        return ""
    low, high = space.centres.min(axis=0), space.centres.max(axis=0)
    span = float(max(high - low))
    pitch = float(getattr(space, "cell_km", 0.0)) or max(span / _ACROSS, 1e-9)
    pitch *= max(1, math.ceil((span / pitch + 1) / _ACROSS))
    first = low - (pitch / 2 if hasattr(space, "cell_km") else 0.0)
    at = np.floor((space.centres - first) / pitch + 1e-6).astype(np.int64)
    columns, rows = at.max(axis=0) + 1
    places, which = np.unique(at @ (1, columns), return_inverse=True)
    amounts = np.bincount(which.ravel(), shares)
    if top is not None:  # the same shade everywhere
        amounts = np.full(amounts.size, shares[0])
    most = max(float(amounts.max()) if top is None else top, 1e-300)
    shades = np.sqrt(np.clip(amounts / most, 0.0, 1.0))
    side = _WIDTH / float(columns)
    height = max(side * float(rows), _LEAST_HEIGHT)
    shapes = []
    for place, shade, amount in zip(
        places.tolist(), shades.tolist(), amounts.tolist(), strict=True
    ):
        row, column = divmod(place, int(columns))
        colour = _COLOURS[round(shade * (len(_COLOURS) - 1))]
        tooltip = "" if top is not None else f"<title>{percent(amount)}</title>"
        shapes.append(
            f'<rect x="{column * side:.1f}" y="{height - (row + 1) * side:.1f}" '
            f'width="{side:.1f}" height="{side:.1f}" fill="{colour}">{tooltip}</rect>'
        )
    scale = round_length(float(columns) * pitch / 4)
    width = scale / pitch * side
    bar = (
        f'<line x1="4" y1="{height + 6:.1f}" x2="{4 + width:.1f}" y2="{height + 6:.1f}" '
        'stroke="#333333" stroke-width="2"/>'
        f'<text x="{8 + width:.1f}" y="{height + 10:.1f}" font-size="11" '
        f'fill="currentColor">{scale:g} {escape(space.unit)}</text>'
    )
    return _svg(height + 16, "".join(shapes) + bar, "a map, north is up")


def _bars(shares: FloatArray) -> str:
    """Shares along a line, neighbours put together where there are many."""
    together = math.ceil(shares.size / _ACROSS)
    padded = np.pad(shares, (0, -shares.size % together))
    heights = padded.reshape(-1, together).sum(axis=1)
    heights = 60.0 * heights / max(float(heights.max()), 1e-300)
    side = _WIDTH / heights.size
    shapes = "".join(
        f'<rect x="{number * side:.1f}" y="{60 - height:.1f}" width="{side:.1f}" '
        f'height="{height:.1f}" fill="{_COLOURS[40]}"/>'
        for number, height in enumerate(heights.tolist())
    )
    return _svg(62.0, shapes, "bars, one for each cell or for some together")


def _svg(height: float, shapes: str, label: str) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-label="{label}" '
        f'width="{_WIDTH:.0f}" height="{height:.0f}" viewBox="0 0 {_WIDTH:.0f} {height:.0f}">'
        f'<g shape-rendering="crispEdges" stroke="#00000010">{shapes}</g></svg>'
    )
