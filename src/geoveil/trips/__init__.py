"""Trips: origin–destination reports, and the flows between places that come back from them."""
