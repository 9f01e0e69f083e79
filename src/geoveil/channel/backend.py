"""Products on another device: arrays of CuPy, torch or any other library of the array API standard.

An operator says how it multiplies there (``Operator._products_on``); everything above it, from one
product to a whole ascent, is then the same code. Draws for people stay with the operating system.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from geoveil.arrays import FloatArray, IntArray
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
        """The same for the same library and device."""
        return f"{self.xp.__name__} {self.device}"

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

    def host(self, array: Array) -> FloatArray:
        """An array of the device in the host's memory."""
        return host_array(array)


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
            found = find(int(number))
            if found is not None:
                return found
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


@dataclass(frozen=True)
class ProductsOn:
    """The two products of an operator on a device, and what they may be off by, absolute.

    ``push_noise`` and ``pull_noise`` give (…, 1) or one for each value; ``None`` for sums without FFT.
    """

    backend: Backend
    push: Callable[[Array], Array]
    pull: Callable[[Array], Array]
    push_noise: Callable[[Array], Array] | None = None
    pull_noise: Callable[[Array], Array] | None = None

    @classmethod
    def by_fft(
        cls,
        backend: Backend,
        push: Callable[[Array], Array],
        pull: Callable[[Array], Array],
        fft_noise: float,
    ) -> ProductsOn:
        """Products that are off by so much for vectors of length 1."""

        def noise(values: Array) -> Array:
            square = backend.xp.sum(values * values, axis=-1, keepdims=True)
            return fft_noise * backend.xp.sqrt(square)

        return cls(backend, push, pull, noise, noise)


def dense_products(backend: Backend, matrix: FloatArray) -> ProductsOn:
    """By a matrix (rows, columns)."""
    held = backend.put(matrix)
    turned = backend.xp.matrix_transpose(held)
    return ProductsOn(backend, lambda theta: theta @ held, lambda values: values @ turned)


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


def scattered(backend: Backend, places: IntArray, size: int) -> Callable[[Array], Array]:
    """(…, n) → (…, size): values at their places, zero elsewhere, as one taking."""
    back = np.full(size, places.size, dtype=np.int64)
    back[places] = np.arange(places.size)
    held = backend.put_places(back)

    def spread(values: Array) -> Array:
        none = backend.xp.zeros((*values.shape[:-1], 1), dtype=values.dtype, device=backend.device)
        return backend.xp.take(backend.xp.concat((values, none), axis=-1), held, axis=-1)

    return spread
