"""The colours of maps: equal steps in value are equal steps for the eye, and zero is quiet.

The colour map runs in the OKLab space (Ottosson 2020), in which equal distances look equal: from
almost white over green and blue to almost black, lightness falling at a constant rate. Cells without
people fade into the paper; in grey print the order stays.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from geoveil.arrays import FloatArray

if TYPE_CHECKING:
    from matplotlib.colors import Colormap

LIGHTEST, DARKEST = 0.985, 0.24
_HUES_DEGREES = (125.0, 285.0)
_MOST_CHROMA = 0.1
_STEPS = 256

_LAB_TO_CONES = np.array(
    [
        [1.0, 0.3963377774, 0.2158037573],
        [1.0, -0.1055613458, -0.0638541728],
        [1.0, -0.0894841775, -1.2914855480],
    ]
)
_CONES_TO_RGB = np.array(
    [
        [4.0767416621, -3.3077115913, 0.2309699292],
        [-1.2684380046, 2.6097574011, -0.3413193965],
        [-0.0041960863, -0.7034186147, 1.7076147010],
    ]
)


@cache
def quiet_map() -> Colormap:
    """The colour map of shares; what is not a number is grey."""
    from matplotlib.colors import ListedColormap

    return ListedColormap(quiet_colours(_STEPS), name="geoveil").with_extremes(bad="#d9d9d9")


def quiet_colours(steps: int) -> FloatArray:
    """(steps, 3): the colours from zero to the largest value, red, green and blue in [0, 1].

    >>> quiet_colours(2).round(1).tolist()
    [[1.0, 1.0, 1.0], [0.1, 0.1, 0.2]]
    """
    along = np.linspace(0.0, 1.0, steps)
    hue = np.radians(np.interp(along, [0.0, 1.0], _HUES_DEGREES))
    chroma = np.interp(along, [0.0, 0.5, 1.0], [0.0, _MOST_CHROMA, 0.07])
    lightness = np.interp(along, [0.0, 1.0], [LIGHTEST, DARKEST])
    lab = np.stack([lightness, chroma * np.cos(hue), chroma * np.sin(hue)], axis=1)
    linear = np.power(lab @ _LAB_TO_CONES.T, 3) @ _CONES_TO_RGB.T
    return _gamma(np.clip(linear, 0.0, 1.0))


def _gamma(linear: FloatArray) -> FloatArray:
    """Linear light to sRGB."""
    bright = 1.055 * np.power(np.maximum(linear, 0.0031308), 1 / 2.4) - 0.055
    return np.where(linear <= 0.0031308, 12.92 * linear, bright)
