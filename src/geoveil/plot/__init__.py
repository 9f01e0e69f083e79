"""Pictures: distributions on maps and curves with bands. Needs the extra ``plot``."""

from geoveil.plot.curves import Curve, draw_curves
from geoveil.plot.maps import Panel, draw_maps, save_maps

__all__ = ["Curve", "Panel", "draw_curves", "draw_maps", "save_maps"]
