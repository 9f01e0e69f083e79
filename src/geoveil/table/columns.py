"""Columns of tables: between Arrow and NumPy, as numbers, and the entries that tell rows apart."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from geoveil.arrays import BoolArray, FloatArray, IntArray
from geoveil.errors import InvalidFile

if TYPE_CHECKING:
    import pyarrow as pa

_NUMBER = r"^[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?$"
_DECIMAL_COMMA = r"^([-+]?[0-9]+),([0-9]+)$"

_GEOMETRY = (
    r"(?is)^(\s*(SRID=\d+;\s*)?(MULTI|GEOMETRY)?(POINT|LINESTRING|POLYGON|COLLECTION)[\sZM]*\([\s(A-Z]*"
    r"[-+]?[.\d][-+.\dE]*\s+[-+.\d]"  # well-known text with two numbers
    r"|\s*\{.*[\"']coordinates[\"']\s*:\s*[\[(]"  # GeoJSON
    r"|(\x01[\x01-\x07]\x00\x00|\x00[\x00\x20-\xE0]\x00\x00[\x01-\x07]).{16}"  # well-known binary
    r"|(010[1-7]0000|00[\dA-F]{2}00000[1-7])[\dA-F]{32,}$)"  # its digits
)
_is_geometry = re.compile(_GEOMETRY).match

# --- From NumPy and back, by their bytes: pyarrow's own ways (pa.array, to_numpy) import
# pandas where that is installed, to ask whether values are its own: tenths of a second of a short command.


def arrow_numbers(values: NDArray[Any], valid: BoolArray | None = None) -> pa.Array:
    """Numbers of NumPy as a column of Arrow; null where they are not ``valid``.

    >>> arrow_numbers(np.array([3, 4]), np.array([True, False])).to_pylist()
    [3, None]
    """
    import pyarrow as pa

    stored = _bits(values) if values.dtype == np.bool_ else np.ascontiguousarray(values)
    buffers = [None if valid is None else pa.py_buffer(_bits(valid)), pa.py_buffer(stored)]
    return pa.Array.from_buffers(pa.from_numpy_dtype(values.dtype), values.size, buffers)


def arrow_texts(texts: Sequence[str | bytes | None], *, binary: bool = False) -> pa.Array:
    """Texts, or bytes, as a column of Arrow; ``None`` is null.

    >>> arrow_texts(["a", None, ""]).to_pylist()
    ['a', None, '']
    """
    import pyarrow as pa

    stored = [(text or "").encode() if not isinstance(text, bytes) else text for text in texts]
    ends = np.cumsum([0, *map(len, stored)], dtype=np.int32)
    valid = _bits(np.array([text is not None for text in texts], dtype=np.bool_))
    buffers = [pa.py_buffer(valid), pa.py_buffer(ends), pa.py_buffer(b"".join(stored))]
    kind = pa.binary() if binary else pa.string()
    return pa.Array.from_buffers(kind, len(stored), buffers)


def numpy_floats(column: pa.Array) -> FloatArray:
    """A column of 64-bit floats as NumPy has them: NaN for null.

    >>> numpy_floats(arrow_numbers(np.array([1.5, 2.5]), np.array([True, False]))[1:])
    array([nan])
    """
    valid, stored = column.buffers()
    here = slice(column.offset, column.offset + len(column))
    floats = np.frombuffer(stored or b"", dtype=np.float64)[here]
    if column.null_count:
        bits = np.unpackbits(np.frombuffer(valid, dtype=np.uint8), bitorder="little")
        floats = np.where(bits[here], floats, np.nan)
    return floats


def _bits(flags: BoolArray) -> NDArray[Any]:
    return np.packbits(flags, bitorder="little")


# --- Numbers, whatever they are written as


def numbers(values: pa.Array, *, degrees: bool = False) -> FloatArray:
    """A column as floats; whatever is not a number becomes NaN.

    A comma between the digits of ``degrees`` is a decimal one: there are no thousands of them.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    kind = str(values.type)
    if is_text(values.type):
        try:
            values = pc.cast(pc.cast(values, pa.string()), pa.float64())
        except pa.ArrowInvalid:  # some entry is no number: the slow way
            binary = pc.cast(values, pa.binary())
            trimmed = pc.replace_substring_regex(binary, pattern=r"^\s+|\s+$", replacement="")
            if degrees:
                trimmed = pc.replace_substring_regex(trimmed, _DECIMAL_COMMA, r"\1.\2")
            clean = pc.if_else(pc.match_substring_regex(trimmed, _NUMBER), trimmed, None)
            values = pc.cast(pc.cast(clean, pa.string()), pa.float64())
    elif not re.match("u?int|float|double|half|decimal|null", kind):
        return np.full(len(values), np.nan)
    return numpy_floats(pc.cast(values, pa.float64(), safe=False))


def is_text(kind: pa.DataType) -> bool:
    """Whether a column of this type holds texts, or the bytes of texts."""
    return "string" in str(kind) or str(kind) in ("binary", "large_binary", "binary_view")


def is_geometry(entry: Any) -> bool:
    """Whether an entry is geometry, as an object, in GeoJSON or as well-known text or binary.

    >>> is_geometry("POINT (2.35 48.85)"), is_geometry("point (3 of 5)")
    (True, False)
    """
    text = entry.decode("latin-1") if isinstance(entry, bytes) else str(entry)
    return hasattr(entry, "__geo_interface__") or _is_geometry(text) is not None


def holds_geometry(column: pa.Array) -> bool:
    """Whether any text of a column, or the bytes of any, is geometry."""
    import pyarrow as pa
    import pyarrow.compute as pc

    texts = column.dictionary if pa.types.is_dictionary(column.type) else column
    if pa.types.is_nested(texts.type):
        return "coordinates: " in str(texts.type)
    if not is_text(texts.type):
        return False
    found = pc.match_substring_regex(texts.cast(pa.large_binary()), _GEOMETRY)
    return bool(pc.any(found).as_py())


def without_views(column: Any) -> Any:
    """A column of Arrow; texts as Polars stores them in the usual way, of which rows can be taken."""
    has_views = "_view" in str(column.type)
    return column.cast(_without_views(column.type)) if has_views else column


def _without_views(kind: pa.DataType) -> pa.DataType:
    import pyarrow as pa

    if pa.types.is_list(kind):
        return pa.list_(_without_views(kind.value_type))
    if pa.types.is_large_list(kind):
        return pa.large_list(_without_views(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([part.with_type(_without_views(part.type)) for part in kind])
    return {"string_view": pa.large_string(), "binary_view": pa.large_binary()}.get(str(kind), kind)


def marked_row(columns: Sequence[pa.Array], *, alone: bool = False) -> int | None:
    """The first text with a point for thousands, where all look like whole numbers: 1.204 beside 812.

    With ``alone`` also where all have one: 1.204 beside 2.310.

    >>> [marked_row([arrow_texts(texts)]) for texts in (["812", "1.204"], ["812", "81.2"])]
    [1, None]
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    texts = [column.cast(pa.binary()) for column in columns if is_text(column.type)]
    values = pa.chunked_array(texts, pa.binary())
    whole = pc.match_substring_regex(values, r"^\s*[0-9]{1,3}\s*$")
    marked = pc.match_substring_regex(values, r"^\s*[1-9][0-9]{0,2}\.[0-9]{3}\s*$")
    if not ((alone or pc.any(whole).as_py()) and pc.all(pc.or_(whole, marked)).as_py()):
        return None
    row = int(pc.index(marked, pa.scalar(True)).as_py())
    return None if row < 0 else row


def cell_numbers(values: FloatArray, size: int, name: str, why: str, before: int = 0) -> IntArray:
    """Numbers of cells in 0 … size − 1; the first other one is named by its row.

    ``before`` rows of the table came earlier; ``why`` ends the sentence.
    """
    wrong = np.flatnonzero(~((values >= 0) & (values < size) & (values == np.floor(values))))
    if wrong.size:
        row = before + int(wrong[0]) + 1
        raise InvalidFile(f"row {row} of {name} must name a cell in 0 … {size - 1}{why}")
    return values.astype(np.int64)


# --- What a column tells rows apart by


def entries(values: pa.Array, name: str) -> tuple[list[Any], IntArray]:
    """The different entries of a column, ``None`` last, and for each row the position of its own."""
    import pyarrow as pa

    if pa.types.is_nested(values.type):
        raise InvalidFile(f"a column of {name} that tells rows apart must hold numbers or text")
    encoded = values if pa.types.is_dictionary(values.type) else values.dictionary_encode()
    different = [*python_values(encoded.dictionary, name), None]
    which = encoded.indices.fill_null(len(different) - 1).to_numpy(zero_copy_only=False)
    return different, which.astype("int64")


def python_values(column: pa.Array, name: str) -> list[Any]:
    """What a column of a table, or of that ``name``, holds in Python: times to a microsecond, without pandas.

    >>> python_values(arrow_numbers(np.array([1_001], "datetime64[ns]")), "visits.parquet")
    [datetime.datetime(1970, 1, 1, 0, 0, 0, 1)]
    """
    import pyarrow as pa

    zone = column.type.tz if pa.types.is_timestamp(column.type) else None
    if pa.types.is_timestamp(column.type) and column.type.unit == "ns":
        column = column.cast(pa.timestamp("us", zone), safe=False)
    try:
        return list(column.to_pylist())
    except OverflowError:
        raise InvalidFile(
            f"the times of {name} must lie in the years 1 to 9999; is their unit another than the file says?"
        ) from None
    except (ValueError, KeyError, AttributeError):  # which one, depends on what is installed
        if zone is None:
            raise
        raise InvalidFile(
            f"the times of {name} must be in a time zone that this machine knows, not {zone}; write "
            "them in UTC"
        ) from None


def is_said(entry: Any) -> bool:
    """Whether an entry says anything: it is there, not blank and not NaN."""
    entry = entry.strip() if isinstance(entry, str) else entry
    try:
        return entry not in (None, "", b"") and bool(entry == entry)
    except TypeError:  # of the NA of pandas nobody can tell what it equals
        return False
