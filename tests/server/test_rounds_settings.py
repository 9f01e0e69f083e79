"""The settings of a campaign: strictly typed, bounded, refused in one sentence."""

from __future__ import annotations

import json
import math
import re
from typing import Any

import msgspec
import pytest

from geoveil.document.wire import ID_PATTERN, new_id
from geoveil.errors import InvalidInput
from geoveil.server.problem import decode
from geoveil.server.settings_of_campaign import CampaignSettings
from server.rounds_support import campaign_settings, raises_problem

BODY = {
    "name": "Paris", "box": [48.8286, 2.2855, 48.8798, 2.3909], "cell_km": 0.5,
    "epsilon_per_km": 2.0, "camouflage": 0.5, "round_size": 5000, "minimum_reports": 200,
}  # fmt: skip


def read(body: bytes) -> CampaignSettings:
    """As the service does."""
    settings: CampaignSettings = decode(msgspec.json.Decoder(CampaignSettings), body)
    settings.problems()
    return settings


def test_the_body_of_the_interface_page_is_read() -> None:
    settings = read(json.dumps(BODY).encode())
    assert settings.grid.size == 192
    assert (settings.mechanism_s, settings.grace_s) == (720 * 3600, 24 * 3600)
    assert read(settings.to_bytes()) == settings


@pytest.mark.parametrize(
    "changed",
    [
        {"name": ""}, {"name": " "}, {"name": "a" * 201}, {"name": "a\nb"}, {"name": "\u202eabc"},
        {"id": ""}, {"id": "Paris"}, {"id": "-a"}, {"id": "a-"}, {"id": "a" * 64}, {"id": "a\n"},
        {"box": (48.9, 2.2, 48.8, 2.4)}, {"box": (48.8, 2.2, 48.8, 2.4)}, {"box": (0.0, 0.0, 50.0, 9.0)},
        {"box": (math.nan, 2.2, 48.9, 2.4)}, {"box": (89.0, 0.0, 90.0, 10.0)},
        {"cell_km": 0.0}, {"cell_km": -1.0}, {"cell_km": math.nan}, {"cell_km": math.inf},
        {"cell_km": 0.015}, {"cell_km": 50.0},
        {"epsilon_per_km": 0.0}, {"epsilon_per_km": 1e9}, {"epsilon_per_km": math.nan},
        {"camouflage": -0.01}, {"camouflage": 1.01}, {"most_leverage": 0.9},
        {"round_size": 0}, {"round_size": 99}, {"round_size": 10**30}, {"minimum_reports": 0},
        {"round_hours": 0.0}, {"round_hours": 1e6}, {"rounds": 0}, {"mechanism_hours": 0.0},
        {"mechanism_hours": 1e6}, {"grace_hours": -1.0}, {"grace_hours": math.inf},
    ],
    ids=str,
)  # fmt: skip
def test_what_cannot_be_is_refused_in_one_sentence(changed: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput) as refusal:
        campaign_settings(**changed).problems()
    sentence = str(refusal.value)
    assert "\n" not in sentence
    assert len(sentence) < 250
    assert "must" in sentence


@pytest.mark.parametrize(
    "body",
    [
        b"", b"[]", b"null", b"{", b"\xff", b"{}",
        json.dumps({**BODY, "cell_km": "0.5"}).encode(),
        json.dumps({**BODY, "cell_km": True}).encode(),
        json.dumps({**BODY, "round_size": 5000.0}).encode(),
        json.dumps({**BODY, "box": [1, 2, 3]}).encode(),
        json.dumps({**BODY, "surprise": 1}).encode(),
        json.dumps({**BODY, "camouflage": math.nan}).encode(),
        b'{"name":' + b"[" * 100_000,
    ],
)  # fmt: skip
def test_what_is_not_such_a_body_is_refused(body: bytes) -> None:
    with raises_problem("malformed-body"):
        read(body)


def test_the_schema_shows_the_bounds_that_are_enforced() -> None:
    schema = msgspec.json.schema(CampaignSettings)["$defs"]["CampaignSettings"]["properties"]
    bounded = {name: field for name, field in schema.items() if "minimum" in str(field)}
    assert len(bounded) == 11
    assert schema["camouflage"] == {
        "type": "number", "minimum": 0.0, "maximum": 1.0, "default": 0.5,
        "description": schema["camouflage"]["description"],
    }  # fmt: skip


@pytest.mark.parametrize(
    ("name", "start"),
    [
        ("Zürich — Tram!", "zurich-tram-"),
        ("東京", "campaign-"),
        ("-=+", "campaign-"),
        ("x" * 200, "x" * 40),
    ],
)
def test_an_id_is_made_from_the_name(name: str, start: str) -> None:
    made = new_id(name)
    assert made.startswith(start)
    assert re.fullmatch(ID_PATTERN, made)
    assert new_id(name) != made
