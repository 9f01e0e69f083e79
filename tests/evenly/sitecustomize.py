"""For the processes that tests start: none steps back for the others, and none designs what another has.

The service makes its estimates at a low priority. Beside busy tests they would wait for the processor,
and the tests for them.
"""

import importlib.util
import os
import sys

if hasattr(os, "nice"):
    os.nice = lambda increment: 0


class _Designing:
    """Finds the module that designs, once somebody imports it."""

    def find_spec(self, name, path=None, target=None):
        if name != "geoveil.campaign.positional_design":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        execute = spec.loader.exec_module

        def executed(module):
            execute(module)
            module._promising = designs.made_once(module._promising)

        spec.loader.exec_module = executed
        return spec


if "DESIGNS_OF_THE_TESTS" in os.environ:
    import designs  # now: a worker of the tests is soon given another path

    sys.meta_path.insert(0, _Designing())
