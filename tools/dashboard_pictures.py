"""Takes the pictures of the dashboard in the documentation anew, from the demo's simulated city.

Part of ``make pictures``; needs the development environment, Node and Chromium.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from urllib.request import Request, urlopen

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from web import node_tools  # noqa: E402

from geoveil.demo import City, LocalCollector, tell  # noqa: E402
from geoveil.demo.handover import dashboard_address  # noqa: E402
from geoveil.randomness import seeded  # noqa: E402

FOLDER = ROOT / "docs" / "images" / "pages"
PEOPLE, ROUNDS = 60_000, 4


def publish(collector: LocalCollector, campaign: str) -> None:
    """Let everybody see the map."""
    headers = {"Authorization": f"Bearer {collector.token}", "Content-Type": "application/json"}
    address = f"{collector.url}/api/campaigns/{campaign}"
    asked = Request(address, b'{"published": true}', headers, method="PATCH")
    urlopen(asked, timeout=60).close()


def main() -> int:
    """Play the demo, then show its dashboard to a browser."""
    try:
        node_tools.build_pages()
        node_tools.prepare(node_tools.PAGES)
    except node_tools.Unavailable as reason:
        raise SystemExit(f"no pictures: {reason}") from None
    seen: list[str] = []
    with LocalCollector() as collector:

        def begun(city: City, link: str) -> None:
            seen.extend([dashboard_address(collector, city, link), link.rpartition("/")[2]])

        tell(collector, people=PEOPLE, rounds=ROUNDS, randomness=seeded(7), begun=begun)
        publish(collector, seen[1])
        folder, _ = node_tools.node_folder()
        command = [str(folder / "node"), "dashboard_pictures.mjs", *seen, str(FOLDER)]
        return subprocess.run(command, cwd=node_tools.PAGES, env=os.environ, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
