"""Products on another device: arrays of CuPy, torch or any other library of the array API standard.

An operator says what its products are made of (``Operator._made_of``), or how it multiplies there
(``Operator._on``); everything above it, from one product to a whole ascent, is then the same code.
Draws for people stay with the operating system.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy

from geoveil.arrays import IntArray
from geoveil.errors import InvalidInput, MissingExtra, Unsupported

Array = Any
"""An array of some library of the array API standard."""


@dataclass(frozen=True, eq=False)
class Backend:
    """A library of arrays and one of its devices."""

    xp: Any
    """The namespace, with the functions of the standard."""
    device: Any

    @property
    def name(self) -> str:
        """One name for each library and device."""
        return f"{self.xp.__name__} {self.device}"

    @property
    def fft(self) -> Any:
        """Its transforms."""
        return self.xp.fft

    def put(self, array: Any) -> Array:
        """An array of the host as doubles on the device."""
        return self.put_as(array, np.float64)

    def put_places(self, places: IntArray) -> Array:
        """Whole numbers of the host, to take with."""
        return self.put_as(places, np.int64)

    def put_as(self, array: Any, kind: Any) -> Array:
        """A copy, since what is read-only or lies backwards is not taken everywhere."""
        return self.xp.asarray(np.array(array, dtype=kind, order="C"), device=self.device)

    def own(self, array: Any) -> Array:
        """An array of the host or of this library as doubles on the device."""
        if backend_of(array) is None:
            return self.put(array)
        return self.xp.astype(array, self.xp.float64, copy=False)

    def joined(self, arrays: Sequence[Array]) -> Array:
        """Side by side on the last axis."""
        return self.xp.concat(arrays, axis=-1)


class _Host(Backend):
    """NumPy on the processor, where everything is already."""

    @property
    def fft(self) -> Any:
        return scipy.fft  # on several cores

    def put_as(self, array: Any, kind: Any) -> Array:
        return np.asarray(array, dtype=kind)

    def joined(self, arrays: Sequence[Array]) -> Array:
        return np.concatenate(arrays, axis=-1)  # NumPy 1 has no other name for it


HOST = _Host(np, "cpu")


def host_array(array: Any) -> Any:
    """An array of any library in the host's memory; what is none of those comes back as it is."""
    if backend_of(array) is None:
        return array
    for method in ("get", "cpu"):  # CuPy, torch
        if hasattr(array, method):
            return np.asarray(getattr(array, method)())
    try:  # the exchange that the standard has
        return np.from_dlpack(array)
    except (AttributeError, BufferError, RuntimeError, TypeError):
        return np.asarray(array)


def backend_of(array: Any) -> Backend | None:
    """Where an array lives; ``None`` for NumPy's and for whatever is no array, such as a list."""
    library = type(array).__module__.partition(".")[0]
    standard = hasattr(array, "__array_namespace__") and library != "numpy"
    if not standard and library not in ("torch", "cupy"):
        return None
    compat = _compat()
    backend = Backend(compat.array_namespace(array), compat.device(array))
    if backend.xp.asarray(0.5, dtype=backend.xp.float64).dtype != backend.xp.float64:
        raise Unsupported(f"{library} must allow numbers of 64 bits here; switch them on first")
    return backend


def backend_named(device: str) -> Backend:
    """The backend for ``device="cuda"``, by torch or else by CuPy."""
    if str(device).partition(":")[0] != "cuda":
        raise InvalidInput(
            f"device ({device!r}) must be 'cuda' or 'cuda:1', or left out for the processor"
        )
    number = str(device).partition(":")[2] or "0"
    if number.isdecimal():
        for find in (_torch, _cupy):
            backend = find(int(number))
            if backend is not None:
                return backend
    raise Unsupported(
        f"device ({device!r}) must be a graphics card that torch or CuPy can use, and neither does "
        "here; install one of them with its driver, or leave device out for the processor"
    )


def _torch(number: int) -> Backend | None:
    try:
        import torch
    except ImportError:
        return None
    if not torch.cuda.is_available() or number >= torch.cuda.device_count():
        return None
    return backend_of(torch.zeros(1, device=f"cuda:{number}"))


def _cupy(number: int) -> Backend | None:
    try:
        import cupy

        with cupy.cuda.Device(number):
            return backend_of(cupy.zeros(1))
    except Exception:  # whatever its driver says, it cannot be used
        return None


def _compat() -> Any:
    try:
        import array_api_compat
    except ImportError as error:
        raise MissingExtra("array-api-compat", "gpu", "an array of another library") from error
    return array_api_compat


class Torus:
    """Transforms of real values over the last axes, padded with zeros to lengths without wrapping round.

    Only transforms over all axes at once: the calls that are quick in every library.
    """

    def __init__(self, backend: Backend, padded: tuple[int, ...]) -> None:
        self.backend = backend
        self.padded = padded
        self.axes = tuple(range(-len(padded), 0))

    def held(self, spectrum: Any) -> Array:
        """A spectrum of the host on the device."""
        return self.backend.put_as(spectrum, spectrum.dtype)

    def transformed(self, lattice: Array) -> Array:
        """The transform of values (…, box), zero beyond their box."""
        return self.backend.xp.fft.rfftn(lattice, s=self.padded, axes=self.axes)

    def values(self, spectrum: Array) -> Array:
        """What has this transform, (…, padded)."""
        return self.backend.xp.fft.irfftn(spectrum, s=self.padded, axes=self.axes)


class Selection:
    """Some of many places: their values taken out of all, or put back with zeros elsewhere."""

    def __init__(self, places: IntArray, size: int) -> None:
        self.places, self.size = places, size

    def take(self, values: Array) -> Array:
        """(…, size) → (…, places)."""
        return values[..., self.places]

    def put(self, values: Array) -> Array:
        """(…, places) → (…, size)."""
        everywhere = np.zeros((*values.shape[:-1], self.size))
        everywhere[..., self.places] = values
        return everywhere

    def on(self, backend: Backend) -> Selection:
        """This selection on a device."""
        return self if backend is HOST else _MovedSelection(self, backend)


class _MovedSelection(Selection):
    """Both ways are a taking, the way back with a zero beside the values: nothing is changed in place."""

    def __init__(self, home: Selection, backend: Backend) -> None:
        super().__init__(backend.put_places(home.places), home.size)
        back = np.full(home.size, home.places.size, dtype=np.int64)
        back[home.places] = np.arange(home.places.size)
        self._back, self._at = backend.put_places(back), backend

    def take(self, values: Array) -> Array:
        return self._at.xp.take(values, self.places, axis=-1)

    def put(self, values: Array) -> Array:
        none = self._at.xp.zeros(
            (*values.shape[:-1], 1), dtype=values.dtype, device=self._at.device
        )
        return self._at.xp.take(self._at.joined((values, none)), self._back, axis=-1)
