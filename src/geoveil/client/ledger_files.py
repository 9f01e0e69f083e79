"""The files around a ledger: one that appears whole, a lock, and a ledger of the first format read back."""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import stat
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from geoveil.client.refusal import Refused
from geoveil.document.canonical import strict_json
from geoveil.files import sync

UNREADABLE = (ValueError, TypeError, KeyError, RecursionError, ArithmeticError)
"""What reading anything that this program did not write may raise."""


def keep_private(path: Path) -> None:
    """Readable and writable by its owner only."""
    if sys.platform != "win32" and stat.S_IMODE(path.stat().st_mode) != 0o600:
        path.chmod(0o600)


def make_empty(path: Path) -> None:
    """An empty file of its owner's only, in the place of any other."""
    path.unlink(missing_ok=True)
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))


def write_durably(path: Path, content: bytes) -> None:
    """The file with this content; after a crash the old one, the new one or none."""
    beside = path.with_name(path.name + ".new")
    make_empty(beside)
    beside.write_bytes(content)
    move_durably(beside, path)


def move_durably(beside: Path, path: Path) -> None:
    """A finished file takes its place: after a crash the old one stands there or the new one."""
    sync(beside)
    beside.replace(path)
    sync(path.parent)


if sys.platform == "win32":
    import msvcrt

    def _lock(handle: int) -> None:
        msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)

else:
    import fcntl

    def _lock(handle: int) -> None:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)


@contextmanager
def locked(path: Path, wait_s: float) -> Iterator[None]:
    """Hold the lock of a file against every other process and thread."""
    last = time.monotonic() + wait_s
    handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        while True:
            try:
                _lock(handle)
                break
            except (BlockingIOError, PermissionError):  # the second is what Windows says
                if time.monotonic() > last:
                    raise Refused("ledger-busy") from None
                time.sleep(0.01)
        yield
    finally:
        os.close(handle)  # lets the lock go, and so does the end of the process


# --- The first format: one JSON file with its own checksum, which held true cells under a key beside them


_TEXTS = {
    "campaign": r"https?://\S+",
    "mechanism": "[0-9a-f]{64}",
    "report": "[0-9a-f]{32}",
    "problem": ".*",
}
_ENTRIES = ("campaign", "round", "mechanism", "report", "epsilon_per_km", "state", "cell", "lat", "lng",
         "problem")  # fmt: skip
_STATES = {"charged": "charged", "drawn": "sent", "sent": "sent", "acknowledged": "acknowledged",
           "refused": "refused"}  # fmt: skip


def first_format(content: bytes) -> tuple[str, dict[str, str], list[dict[str, Any]]]:
    """The id, the space of each campaign and the charges of such a ledger, and nothing true.

    One of :data:`UNREADABLE` where anything is not as that program wrote it. What was drawn and not
    sent yet counts as sent: ``flush`` sends it.
    """
    values = strict_json(content)
    check = values.pop("check")
    _require(check == hashlib.sha256(_json(values)).hexdigest())
    _require((values["geoveil"], values["kind"]) == (1, "ledger"))
    _require(re.fullmatch("[0-9a-f]{32}", values["id"]) is not None)
    spaces = {name: page["space"] for name, page in values["pages"].items()}
    _require(all(re.fullmatch("[0-9a-f]{64}", space) is not None for space in spaces.values()))
    charges = [_charge(charge) for charge in values["charges"]]
    _require(len({charge["report"] for charge in charges}) == len(charges))
    return values["id"], spaces, charges


def _charge(entry: Mapping[str, Any]) -> dict[str, Any]:
    charge = {name: entry[name] for name in _ENTRIES}
    for name, pattern in _TEXTS.items():
        _require(re.fullmatch(pattern, charge[name]) is not None)
    _require(type(charge["round"]) is int and charge["round"] >= 1)
    cost = charge["epsilon_per_km"]
    _require(type(cost) in (int, float) and math.isfinite(cost) and cost > 0)
    charge["state"] = _STATES[charge["state"]]
    _require((charge["cell"] is None) == (charge["state"] == "charged"))
    return charge


def _require(condition: bool) -> None:
    if not condition:
        raise ValueError("not a ledger that this program wrote")


def _json(values: Mapping[str, Any]) -> bytes:
    return json.dumps(values, sort_keys=True, separators=(",", ":")).encode()
