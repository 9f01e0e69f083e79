"""The whole story on a city that does not exist: nobody's data is needed to see it."""

from geoveil.demo.city import City, District, simulated_city
from geoveil.demo.story import LocalCollector, Story, tell

__all__ = ["City", "District", "LocalCollector", "Story", "simulated_city", "tell"]
