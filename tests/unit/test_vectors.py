"""The vectors that other implementations run: never stale, and true by arithmetic of their own."""

from __future__ import annotations

import copy
import hashlib
import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest

from geoveil.document.wire import MechanismDocument, RefusedDocument

FOLDER = Path(__file__).resolve().parents[2] / "vectors"
NAMES = sorted(path.stem.removeprefix("mechanism-") for path in FOLDER.glob("mechanism-*.json"))


def loaded(name: str) -> Any:
    return json.loads((FOLDER / name).read_text(encoding="utf-8"))


def edited(case: dict[str, Any]) -> bytes:
    if "text" in case:
        return case["text"].encode()
    values = json.loads(loaded(f"mechanism-{case['base']}.json")["document"])
    for entry in case["remove"]:
        del values[entry]
    for path, value in case["set"].items():
        *way, last = path.split(".")
        inner = values
        for step in way:
            inner = inner[step]
        inner[int(last) if isinstance(inner, list) else last] = value
    return json.dumps(values).encode()


def test_the_files_are_what_the_program_writes() -> None:
    spec = importlib.util.spec_from_file_location("vectors_generate", FOLDER / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    texts = module.texts()
    assert set(texts) == {path.name for path in FOLDER.glob("*.json")}
    for name, text in texts.items():
        assert (FOLDER / name).read_text(encoding="utf-8") == text, f"{name} is stale"


@pytest.mark.parametrize("name", NAMES)
def test_a_document_has_its_id_and_reads_back(name: str) -> None:
    vector = loaded(f"mechanism-{name}.json")
    assert hashlib.sha256(vector["document"].encode()).hexdigest() == vector["id"]
    for text in (vector["document"], vector["served"]):
        document = MechanismDocument.read(text.encode())
        assert document.id == vector["id"]
        assert document.to_bytes() == vector["document"].encode()
        assert document.served() == vector["served"].encode()


@pytest.mark.parametrize("name", NAMES)
def test_rows_sums_and_draws_follow_from_the_text_alone(name: str) -> None:
    vector = loaded(f"mechanism-{name}.json")
    values = json.loads(vector["document"])
    rows, columns = values["space"]["rows"], values["space"]["columns"]

    def row(x: int) -> list[int]:
        return [
            values["kernel"][
                abs(x // columns - y // columns) * columns + abs(x % columns - y % columns)
            ]
            * values["weights"][y]
            for y in range(rows * columns)
        ]

    table = [row(x) for x in range(rows * columns)]
    assert [str(sum(line)) for line in table] == vector["sums"]
    assert all([str(e) for e in table[int(x)]] == line for x, line in vector["rows"].items())
    for index, report in enumerate(vector["draws"]):
        x = index % len(table)
        bits = hashlib.sha256(f"{name}:{index}".encode()).digest()[:16]
        target = int.from_bytes(bits, "big") * sum(table[x]) // 2**128
        y = 0
        while target >= table[x][y]:
            target -= table[x][y]
            y += 1
        assert y == report


def test_ten_thousand_draws_are_there() -> None:
    assert sum(len(loaded(f"mechanism-{name}.json")["draws"]) for name in NAMES) >= 10_000


@pytest.mark.parametrize("index", range(len(loaded("refused.json"))))
def test_a_bad_document_is_refused_for_its_reason(index: int) -> None:
    case = loaded("refused.json")[index]
    with pytest.raises(RefusedDocument) as refusal:
        MechanismDocument.read(edited(copy.deepcopy(case)))
    assert refusal.value.reason == case["reason"]
