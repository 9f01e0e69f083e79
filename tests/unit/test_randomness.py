"""Random bits: exact draws by enumeration of every word, failure of the generator, seeds."""

from __future__ import annotations

import os

import numpy as np
import pytest

import geoveil as gv
from contract.statistics import FALSE_ALARM, assert_follows, p_value
from geoveil.errors import InvalidInput, RandomnessFailed
from geoveil.randomness import SYSTEM


class Scripted(gv.Randomness):
    """Gives the bytes of a script, then seeded ones."""

    def __init__(self, script: bytes) -> None:
        self.script = script
        self.rest = gv.seeded(1)
        self.used = 0

    def bytes(self, size: int) -> bytes:
        self.used += size
        given, self.script = self.script[:size], self.script[size:]
        return given + self.rest.bytes(size - len(given))


def every_word(dtype: type) -> bytes:
    """All values of a type of one or two bytes, once each."""
    info = np.iinfo(dtype)
    return np.arange(info.min, int(info.max) + 1).astype(dtype).tobytes()


@pytest.mark.parametrize("byte", [b"\x00", b"\xff"])
def test_uniform_numbers_never_reach_the_ends(byte: bytes) -> None:
    (number,) = Scripted(8 * byte).uniform(1)
    assert 0 < number < 1
    assert min(number, 1 - number) == 2.0**-53


def test_uniform_numbers_are_midpoints_without_rounding() -> None:
    words = np.arange(2**52 - 3, 2**52, dtype=np.uint64) << np.uint64(12)
    numbers = Scripted(words.tobytes()).uniform(3)
    assert (numbers * 2**53).tolist() == [2**53 - 5, 2**53 - 3, 2**53 - 1]


@pytest.mark.parametrize("bound", [1, 2, 3, 7, 10, 15, 16])
def test_whole_numbers_from_every_byte_are_exactly_uniform(bound: int) -> None:
    source = Scripted(every_word(np.uint8))
    drawn = source.below(bound, 256)
    kept = 256 - 256 % bound
    assert source.used >= 256 + (256 - kept)
    counts = np.bincount(drawn, minlength=bound)
    # the refused bytes were drawn again: all others fall evenly
    assert counts.sum() == 256
    assert counts.min() >= kept // bound
    assert drawn.min() >= 0
    assert drawn.max() < bound


@pytest.mark.parametrize("bound", [3, 7, 10, 15])
def test_whole_numbers_drawn_again_are_exactly_uniform_too(bound: int) -> None:
    """Every draw is refused at first; the second time the refused are again as few as they must be."""
    source = Scripted(256 * b"\x00" + every_word(np.uint8))
    drawn = source.below(bound, 256)
    kept = 256 - 256 % bound
    counts = np.bincount(drawn, minlength=bound)
    assert counts.min() >= kept // bound
    assert source.used < 512 + 2 * (256 - kept) + 16


@pytest.mark.parametrize("bound", [17, 100, 1000, 4095, 4096])
def test_whole_numbers_from_every_pair_of_bytes_are_exactly_uniform(bound: int) -> None:
    drawn = Scripted(every_word(np.uint16)).below(bound, 65536)
    counts = np.bincount(drawn, minlength=bound)
    assert counts.min() >= 65536 // bound
    assert counts.sum() == 65536


@pytest.mark.statistical
@pytest.mark.parametrize("bound", [3, 17, 5000])
def test_whole_numbers_follow_the_uniform_law(bound: int) -> None:
    drawn = gv.seeded(2).below(bound, 400_000)
    assert_follows(drawn, np.full(bound, 1 / bound))


def test_large_bounds() -> None:
    drawn = gv.seeded(3).below(2**32, 1000)
    assert drawn.max() > 2**31
    assert gv.seeded(3).below(1, 10).tolist() == [0] * 10
    for bound in (0, -1, 2**32 + 1, 2.0, True):
        with pytest.raises(InvalidInput):
            gv.seeded(3).below(bound, 1)


@pytest.mark.parametrize("whole", [0, 1, 100, 255, 256])
def test_chances_in_256ths_are_exact(whole: int) -> None:
    happened = Scripted(every_word(np.uint8)).chance(whole / 256, 256)
    assert happened.sum() == whole


@pytest.mark.statistical
@pytest.mark.parametrize("probability", [0.3, 1e-3, 1 - 1e-3, 1 / 3])
def test_chances_follow_their_probability(probability: float) -> None:
    happened = gv.seeded(4).chance(probability, 1_000_000).astype(np.int64)
    law = np.array([1 - probability, probability])
    counts = np.bincount(happened, minlength=2)
    assert p_value(counts, law) > FALSE_ALARM
    # the power twin: the rarer of the two events off by a quarter
    rare = min(probability, 1 - probability) * 1.25
    wrong = [1 - rare, rare] if probability < 0.5 else [rare, 1 - rare]
    assert p_value(counts, np.array(wrong)) < FALSE_ALARM


def test_chances_one_each() -> None:
    happened = gv.seeded(5).chance(np.tile([0.0, 1.0], 5000), 10_000)
    assert happened.reshape(-1, 2).sum(axis=0).tolist() == [0, 5000]
    assert gv.seeded(5).chance(0.5, 0).size == 0
    for wrong in (-1e-9, 1 + 1e-9, np.nan, [0.5, 2.0]):
        with pytest.raises(InvalidInput, match="probability"):
            gv.seeded(5).chance(wrong, 2)


@pytest.mark.parametrize("failure", [OSError("gone"), NotImplementedError()])
def test_a_failing_generator_gives_nothing(
    failure: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(size: int) -> bytes:
        raise failure

    monkeypatch.setattr(os, "urandom", fail)
    with pytest.raises(RandomnessFailed, match="nothing was sampled"):
        SYSTEM.uniform(3)


def test_too_few_bytes_give_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "urandom", lambda size: b"\x00" * (size - 1))
    with pytest.raises(RandomnessFailed, match="too few"):
        SYSTEM.bytes(16)


def test_people_get_the_operating_system(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    true = os.urandom

    def counted(size: int) -> bytes:
        asked.append(size)
        return true(size)

    monkeypatch.setattr(os, "urandom", counted)
    gv.RandomizedResponse(gv.Line(5), epsilon=1.0).sample([1, 2, 3])
    assert sum(asked) > 0
    before = len(asked)
    gv.RandomizedResponse(gv.Line(5), epsilon=1.0).sample([1, 2, 3], randomness=gv.seeded(1))
    assert len(asked) == before


def test_seeds_repeat_and_differ() -> None:
    assert gv.seeded(7).bytes(64) == gv.seeded(7).bytes(64)
    assert gv.seeded(7).bytes(64) != gv.seeded(8).bytes(64)
    assert repr(gv.seeded(7)) == "SeededRandomness(seed=7)"
    assert repr(SYSTEM) == "SystemRandomness()"
    for wrong in (-1, 1.5, "7", None, True):
        with pytest.raises(InvalidInput):
            gv.seeded(wrong)


GRID = gv.Grid(rows=2, columns=3, cell_km=0.5)
NOISE = gv.ContinuousLaplace(epsilon_per_km=2.0)
RESPONSE = gv.RandomizedResponse(GRID, epsilon=1.0)


@pytest.mark.parametrize(
    "draw",
    [
        lambda source: RESPONSE.sample([1], randomness=source),
        lambda source: gv.Rappor(GRID, epsilon=1.0).sample([1], randomness=source),
        lambda source: gv.ExactTable(RESPONSE).sample([1], randomness=source),
        lambda source: NOISE.sample_km([0.0, 0.0], randomness=source),
        lambda source: NOISE.sample_latlng(lat=1.0, lng=2.0, randomness=source),
        lambda source: gv.NearestPlace(NOISE, GRID).sample([1], randomness=source),
        lambda source: gv.NearestPlace(NOISE, GRID).expected_loss([1 / 6] * 6, randomness=source),
        lambda source: gv.obfuscate({"lat": [1.0], "lng": [2.0]}, NOISE, randomness=source),
        lambda source: gv.CountRelease(people=4, prior=[0.5, 0.5], multiplier=1.0).sample(
            [3, 1], randomness=source
        ),
        lambda source: gv.audit(RESPONSE, draws=1000, randomness=source),
        lambda source: gv.manipulation_gain(RESPONSE, [1 / 6] * 6, randomness=source),
    ],
)
@pytest.mark.parametrize("source", [7, np.random.default_rng(7), "seed"], ids=type)
def test_what_is_no_source_is_refused_in_one_voice(draw, source) -> None:
    """A number is no seed: whoever writes one gets told how to write it."""
    with pytest.raises(
        InvalidInput, match=r"randomness \(.*\) must be a source .* gv\.seeded\(7\)"
    ):
        draw(source)


def test_any_seed_from_zero_on_will_do() -> None:
    assert gv.seeded(0).seed == 0
    assert gv.seeded(0).below(100, 50).tolist() != gv.seeded(1).below(100, 50).tolist()
    with pytest.raises(InvalidInput, match="seed"):
        gv.seeded(-1)


def test_a_seed_has_the_bits_of_numpy_as_is_said() -> None:
    """What the documentation warns of: one seed for people and noise makes the two depend on each other."""
    theirs = np.random.default_rng(7).random(1000)
    np.testing.assert_allclose(gv.seeded(7).uniform(1000), theirs, atol=2.0**-52)
