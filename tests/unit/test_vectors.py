"""The vectors that other implementations run: never stale, and true by arithmetic of their own."""

from __future__ import annotations

import base64
import copy
import hashlib
import importlib.util
import json
import math
import struct
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import geoveil as gv
from geoveil.document.slots import Slots
from geoveil.document.wire import MechanismDocument, RefusedDocument, tag_of

FOLDER = Path(__file__).resolve().parents[2] / "vectors"
NAMES = sorted(path.stem.removeprefix("mechanism-") for path in FOLDER.glob("mechanism-*.json"))


@cache
def loaded(name: str) -> Any:
    """What is in a file; nobody changes it."""
    return json.loads((FOLDER / name).read_text(encoding="utf-8"))


def unpacked(text: str, kind: str = "I") -> list[int]:
    data = base64.b64decode(text)
    return list(struct.unpack(f">{len(data) // 4}{kind}", data))


def weights_of(values: dict[str, Any]) -> list[int]:
    """Four bytes each; two where there are more than 4,096 cells."""
    space = values["space"]
    if "rows" not in space or space["rows"] * space["columns"] <= 4096:
        return unpacked(values["weights"])
    data = base64.b64decode(values["weights"])
    codes = struct.unpack(f">{len(data) // 2}H", data)
    return [code % 2048 + 2048 << (code >> 11) - 1 if code >> 11 else code for code in codes]


def edited(case: dict[str, Any]) -> bytes:
    if "text" in case:
        return b" " * case.get("spaces", 0) + case["text"].encode()
    values = json.loads(loaded(f"mechanism-{case['base']}.json")["document"])
    for entry in case.get("remove", []):
        del values[entry]
    if "poke" in case:
        field, index, value = case["poke"]
        data = bytearray(base64.b64decode(values[field]))
        struct.pack_into(">I", data, 4 * index, value)
        values[field] = base64.b64encode(data).decode()
    changes = dict(case.get("set", {}))
    if "cut" in case:
        path, characters = case["cut"]
        inner = values
        for step in path.split("."):
            inner = inner[step]
        changes[path] = inner[:-characters]
    for path, value in changes.items():
        *way, last = path.split(".")
        inner = values
        for step in way:
            inner = inner[step]
        inner[last] = value
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


@pytest.mark.parametrize("part", [1 - 1e-4, 1 - 1e-6, 1 + 1e-6])
@pytest.mark.parametrize("name", ["fiji", "lagoon", "paris"])
def test_an_audit_finds_of_a_promise_what_a_device_finds(name: str, part: float) -> None:
    """Also a hair below what a design is certified at, where a device may still be able to show it."""
    vector = loaded(f"mechanism-{name}.json")
    changes = {"epsilon_per_km": part * vector["certified_epsilon_per_km"], "slack_nats": 0.02}
    document = MechanismDocument.read(edited({"base": name, "set": changes}), certified=True)
    found = gv.certify(document.channel(None), claim=document.promise)
    assert found.holds == MechanismDocument.read(document.to_bytes(), certified=True).law.keeps(
        document.promise
    )
    if found.holds:
        assert found.epsilon_per_km <= document.promise.epsilon_per_km


@pytest.mark.parametrize("name", NAMES)
def test_a_document_has_its_id_and_reads_back(name: str) -> None:
    vector = loaded(f"mechanism-{name}.json")
    assert hashlib.sha256(vector["document"].encode()).hexdigest() == vector["id"]
    for text, certified in ((vector["document"], True), (vector["served"], False)):
        document = MechanismDocument.read(text.encode(), certified=certified)
        assert document.id == vector["id"]
        assert document.to_bytes() == vector["document"].encode()
        assert document.served() == vector["served"].encode()


@pytest.mark.parametrize("name", NAMES)
def test_rows_sums_and_draws_follow_from_the_text_alone(name: str) -> None:
    vector = loaded(f"mechanism-{name}.json")
    values = json.loads(vector["document"])
    weights, kernel = weights_of(values), unpacked(values["kernel"])
    west, south, east, north = vector["rectangle"]

    def row(x: int, y: int) -> list[int]:
        x, y = min(max(x, west), east), min(max(y, south), north)
        return [
            weight * kernel[min(math.isqrt((x - a) ** 2 + (y - b) ** 2), len(kernel) - 1)]
            for weight, (a, b) in zip(weights, vector["centres"], strict=True)
        ]

    def drawn(line: list[int], bits: bytes) -> int:
        target, report = int.from_bytes(bits, "big") * sum(line) // 2**128, 0
        while target >= line[report]:
            target -= line[report]
            report += 1
        return report

    places = vector["positions"]
    rows = [row(*place) for place in places[:200]]
    assert [[str(entry) for entry in line] for line in rows[:3]] == vector["rows"]
    assert [str(sum(line)) for line in rows] == vector["sums"]
    assert len(places) == len(vector["draws"])
    for index in range(0, len(places), 3):
        line, report = row(*places[index]), vector["draws"][index]
        assert sum(line) < 2**63
        assert drawn(line, hashlib.sha256(f"{name}:{index}".encode()).digest()[:16]) == report
    ends = [drawn(line, byte * 16) for line in rows[:100] for byte in (b"\x00", b"\xff")]
    assert ends == vector["ends"]


@pytest.mark.parametrize("name", NAMES)
def test_centres_lie_where_the_text_says(name: str) -> None:
    vector = loaded(f"mechanism-{name}.json")
    values = json.loads(vector["document"])
    space, step = values["space"], values["step"]
    if space["kind"] == "centres":
        flat = unpacked(space["points"], "i")
        assert vector["centres"] == [list(pair) for pair in zip(flat[::2], flat[1::2], strict=True)]
        return
    cells = [(c * step, r * step) for r in range(space["rows"]) for c in range(space["columns"])]
    if "mask" in space:
        bits = "".join(f"{byte:08b}" for byte in base64.b64decode(space["mask"]))
        cells = [cell for cell, bit in zip(cells, bits, strict=False) if bit == "1"]
    ring = [
        (c * step, r * step)
        for r in range(-1, space["rows"] + 1)
        for c in range(-1, space["columns"] + 1)
        if r in (-1, space["rows"]) or c in (-1, space["columns"])
    ]
    assert vector["centres"] == [list(cell) for cell in cells + ring * values["rim"]]
    beyond = 0 if values["rim"] else step // 2
    across, up = [c for c, _ in cells], [r for _, r in cells]
    wanted = [min(across) - beyond, min(up) - beyond, max(across) + beyond, max(up) + beyond]
    assert vector["rectangle"] == wanted


@pytest.mark.parametrize("name", NAMES)
def test_places_are_steps_of_the_lattice(name: str) -> None:
    vector = loaded(f"mechanism-{name}.json")
    document = MechanismDocument.read(vector["document"].encode(), certified=True)
    for lat, lng, steps in vector["places"]:
        assert document.law.steps_of(document.area.place_km(lat, lng)).tolist() == steps
    assert vector["seen_epsilon_per_km"] <= vector["certified_epsilon_per_km"]
    assert vector["certified_epsilon_per_km"] <= document.epsilon_per_km + 1e-9


def test_ten_thousand_draws_are_there() -> None:
    assert sum(len(loaded(f"mechanism-{name}.json")["draws"]) for name in NAMES) >= 10_000


def test_all_kinds_of_documents_are_there() -> None:
    texts = [json.loads(loaded(f"mechanism-{name}.json")["document"]) for name in NAMES]
    assert {text["rim"] for text in texts} == {0, 1}
    assert {text["space"]["kind"] for text in texts} == {"grid", "centres"}
    assert any("mask" in text["space"] for text in texts)
    assert any("slots" in text for text in texts)
    assert any("trips" in text for text in texts)


@pytest.mark.parametrize("index", range(len(loaded("refused.json"))))
def test_a_bad_document_is_refused_for_its_reason(index: int) -> None:
    case = loaded("refused.json")[index]
    with pytest.raises(RefusedDocument) as refusal:
        MechanismDocument.read(edited(copy.deepcopy(case)))
    assert refusal.value.reason == case["reason"]


def test_levels_are_read_together() -> None:
    vector = loaded("levels.json")
    levels = MechanismDocument.read_levels(vector["body"].encode())
    assert [level.id for level in levels] == vector["ids"]
    assert [level.level for level in levels] == [0, 1]
    assert tag_of(levels) == vector["tag"]
    alone = loaded("mechanism-paris.json")
    (only,) = MechanismDocument.read_levels(alone["served"].encode(), certified=True)
    assert tag_of([only]) == alone["id"]
    with pytest.raises(RefusedDocument, match="carry its id"):
        MechanismDocument.read_levels(alone["document"].encode())


@pytest.mark.parametrize("index", range(len(loaded("levels.json")["refused"])))
def test_levels_that_do_not_belong_together_are_refused(index: int) -> None:
    vector = loaded("levels.json")
    body, case = json.loads(vector["body"]), vector["refused"][index]
    listed: list[Any] = []
    for each in case["levels"]:
        if isinstance(each, list):
            listed.append({**body["levels"][each[0]], **each[1]})
        else:
            listed.append(body["levels"][each] if isinstance(each, int) else each)
    answer = {"geoveil": 2, "kind": "levels", "levels": listed, **case["set"]}
    with pytest.raises(RefusedDocument) as refusal:
        MechanismDocument.read_levels(json.dumps(answer).encode(), certified=True)
    assert refusal.value.reason == case["reason"]


def test_slots_are_those_of_the_local_clock() -> None:
    for values, times in loaded("slots.json"):
        slots = Slots.from_dict(values)
        assert slots.to_dict() == values
        assert [slots.at(time_s) for time_s, _ in times] == [slot for _, slot in times]
