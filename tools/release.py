"""Builds what is released, twice, and stops unless both builds are the same to the last bit.

Run by ``make release``. From the committed files alone it writes into ``dist/``: the wheel and the source
archive, ``sbom.json`` (what the program is made of, CycloneDX 1.6, from ``requirements.lock``) and
``provenance.json`` (the commit, the tools and the hashes, so that anybody can build and compare).
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import platform
import re
import subprocess
import sys
import tarfile
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
_PACKAGE = re.compile(r"^(?P<name>[\w.-]+)==(?P<version>[\w.+!-]+)")
_HASH = re.compile(r"--hash=sha256:(?P<digest>[0-9a-f]{64})")
_VIA = re.compile(r"^\s+#\s+(?:via\s+)?(?P<name>[\w.-]+(?: \(pyproject\.toml[:\w]*\))?)$")
_OURS, _DEV = "geoveil (pyproject.toml)", "geoveil (pyproject.toml:dev)"


def locked(text: str) -> list[dict[str, Any]]:
    """Every package of a lock file: its name and version, the hashes of its files, and what asks for it.

    Of some there are two versions, each for its own versions of Python.
    """
    packages: list[dict[str, Any]] = []
    for line in text.splitlines():
        if found := _PACKAGE.match(line):
            packages.append({**found.groupdict(), "hashes": [], "via": []})
        elif found := _HASH.search(line):
            packages[-1]["hashes"].append(found["digest"])
        elif packages and (found := _VIA.match(line)):
            packages[-1]["via"].append(found["name"])
    return packages


def at_run_time(packages: list[dict[str, Any]]) -> set[str]:
    """The packages that the program or one of its extras needs; the others are for developers."""
    needed = {each["name"] for each in packages if _OURS in each["via"]}
    while more := {each["name"] for each in packages if needed & set(each["via"])} - needed:
        needed |= more
    return needed


def bill_of_materials(packages: list[dict[str, Any]], release: str) -> dict[str, Any]:
    """The lock file as a CycloneDX document; the same lock gives the same bytes."""
    needed = at_run_time(packages)
    components = [
        {
            "type": "library",
            "name": each["name"],
            "version": each["version"],
            "purl": f"pkg:pypi/{each['name']}@{each['version']}",
            "scope": "required" if each["name"] in needed else "excluded",
            "hashes": [{"alg": "SHA-256", "content": digest} for digest in sorted(each["hashes"])],
        }
        for each in sorted(packages, key=lambda each: (each["name"], each["version"]))
    ]
    subject = {"type": "application", "name": "geoveil", "version": release}
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": {**subject, "purl": f"pkg:pypi/geoveil@{release}"}},
        "components": components,
    }


def built(folder: Path, archive: bytes, commit_s: str) -> dict[str, bytes]:
    """The files of one build, by name, from an archive of the committed files."""
    with tarfile.open(fileobj=io.BytesIO(archive)) as files:
        files.extractall(folder, filter="data")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-d", "out", "-t", "sdist", "-t", "wheel"],
        cwd=folder,
        env={"SOURCE_DATE_EPOCH": commit_s, "PATH": "/usr/bin:/bin", **_for_npm()},
        check=True,
        stdout=subprocess.DEVNULL,
    )
    return {each.name: each.read_bytes() for each in sorted((folder / "out").iterdir())}


def _for_npm() -> dict[str, str]:
    """What npm needs to fetch the tools that build the pages: where its settings and the registry are."""
    wanted = re.compile(r"HOME|npm_config_.*|NODE_EXTRA_CA_CERTS|https?_proxy|no_proxy", re.I)
    return {name: text for name, text in os.environ.items() if wanted.fullmatch(name)}


def _git(*arguments: str) -> bytes:
    return subprocess.run(["git", *arguments], cwd=ROOT, check=True, capture_output=True).stdout


def main() -> None:
    """Build twice, compare, and write everything."""
    archive, commit_s = _git("archive", "HEAD"), _git("log", "-1", "--format=%ct").decode().strip()
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as other:
        first, second = (built(Path(each), archive, commit_s) for each in (one, other))
    different = [name for name in first | second if first.get(name) != second.get(name)]
    if different:
        sys.exit(f"two builds must be the same; {', '.join(different)} differ")
    release = next(name for name in first if name.endswith(".whl")).split("-")[1]
    dist = ROOT / "dist"
    dist.mkdir(exist_ok=True)
    written = dict(first)
    lock = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    written["sbom.json"] = _json(bill_of_materials(locked(lock), release))
    written["provenance.json"] = _json(
        {
            "commit": _git("rev-parse", "HEAD").decode().strip(),
            "python": platform.python_version(),
            "hatchling": version("hatchling"),
            "lock": hashlib.sha256(lock.encode()).hexdigest(),
            "sha256": {name: hashlib.sha256(data).hexdigest() for name, data in written.items()},
        }
    )
    for name, data in written.items():
        (dist / name).write_bytes(data)
        sys.stdout.write(f"{hashlib.sha256(data).hexdigest()}  dist/{name}\n")


def _json(values: dict[str, Any]) -> bytes:
    return json.dumps(values, indent=2, sort_keys=True).encode() + b"\n"


if __name__ == "__main__":
    main()
