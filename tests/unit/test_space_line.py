"""The line of whole numbers."""

from __future__ import annotations

import json

import numpy as np
import pytest

from geoveil.errors import InvalidFile, InvalidInput, OutsideSpace, TooLarge
from geoveil.space import Line, space_from_dict


def test_distances_are_differences() -> None:
    line = Line(7)
    expected = [[abs(a - b) for b in range(7)] for a in range(7)]
    assert line.distances_km().tolist() == expected
    assert line.distance_km([[0], [6]], [2, 5]).tolist() == [[2, 5], [4, 1]]
    assert line.distances_from_km(3).tolist() == expected[3]
    assert line.centres.shape == (7, 1)
    assert line.unit == "unit"


def test_values_go_to_the_nearest_whole_number() -> None:
    line = Line(5)
    values = np.array([-0.5, -0.2, 0.49, 0.5, 1.5, 2.5, 3.7, 4.5])
    cells = line.locate(values, outside="raise")
    assert cells.tolist() == [0, 0, 0, 1, 2, 3, 4, 4]
    assert cells.dtype == np.int64
    assert type(line.locate(3.2)) is int
    assert line.locate([-1e300, 1e300], outside="clamp").tolist() == [0, 4]
    assert line.locate([-1.0, 2.0, 9.0], outside="drop").tolist() == [2]
    assert line.locate([[1, 2], [3, 4]]).tolist() == [[1, 2], [3, 4]]
    with pytest.raises(OutsideSpace, match="1 of 2 do not, the first at position 1"):
        line.locate([4.4, 4.6])
    with pytest.raises(InvalidInput, match="position 1"):
        line.locate([1.0, np.nan])
    with pytest.raises(InvalidInput, match="one of clamp, drop, raise"):
        line.locate(1.0, outside="wrap")  # type: ignore[call-overload]


def test_bad_lines_are_refused() -> None:
    for size in (0, -3, 2.5, True, "7", None):
        with pytest.raises(InvalidInput, match="size"):
            Line(size)  # type: ignore[arg-type]
    for size in (10**9, 10**5000):
        with pytest.raises(TooLarge, match="100,000,000"):
            Line(size)


def test_a_line_survives_json() -> None:
    line = space_from_dict(json.loads(json.dumps(Line(100).to_dict())))
    assert line == Line(100)
    assert line != Line(99)
    assert hash(line) == hash(Line(100))
    assert repr(line) == "Line(size=100)"
    for values in ({"kind": "line"}, {"kind": "line", "size": 3, "step": 1}, {"kind": "grid"}):
        with pytest.raises(InvalidFile):
            Line.from_dict(values)
