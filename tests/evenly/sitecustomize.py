"""For the processes that tests start: none steps back for the others.

The service makes its estimates at a low priority. Beside busy tests they would wait for the processor,
and the tests for them.
"""

import os

if hasattr(os, "nice"):
    os.nice = lambda increment: 0
