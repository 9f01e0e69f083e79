"""What the demo hands to the dashboard, in the part of the address that no browser sends to a server."""

from __future__ import annotations

import os
import sys
import webbrowser
from base64 import urlsafe_b64encode
from urllib.parse import urlencode, urlsplit

import numpy as np

from geoveil.arrays import FloatArray
from geoveil.demo.city import City
from geoveil.demo.story import LocalCollector

_MOST = 65_535


def dashboard_address(collector: LocalCollector, city: City, link: str) -> str:
    """The dashboard of a running demo: signed in, with the simulated truth beside the estimate.

    The truth stands behind ``#``: the collector never receives it.
    """
    campaign = urlsplit(link).path.rsplit("/", 1)[-1]
    handed = {
        "campaign": campaign,
        "token": collector.token,
        "simulated": packed(city.distribution),
    }
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
