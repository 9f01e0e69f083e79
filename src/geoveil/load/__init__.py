"""Load for a collector: simulated devices that check, draw and send as real ones do, many at once."""

from geoveil.load.fleet import Fleet
from geoveil.load.plan import Plan
from geoveil.load.result import LoadResult
from geoveil.load.run import run_load

__all__ = ["Fleet", "LoadResult", "Plan", "run_load"]
