"""Mechanisms as documents: canonical JSON that rebuilds the same mechanism anywhere."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from geoveil.channel.certificate import check_claim, promising
from geoveil.channel.channel import Channel
from geoveil.channel.composed import DenseChannel, Remapped
from geoveil.channel.guarantee import (
    BetweenPositions,
    GeoIndistinguishability,
    Guarantee,
    LocalDifferentialPrivacy,
    WithinRadius,
)
from geoveil.document.canonical import canonical_bytes, strict_json
from geoveil.document.wire import KIND, MechanismDocument
from geoveil.errors import GeoveilError, InvalidFile, InvalidInput, Unsupported
from geoveil.files import replaced_file
from geoveil.mechanism import MECHANISMS
from geoveil.mechanism.mechanism import Mechanism
from geoveil.mechanism.planar import ContinuousLaplace
from geoveil.position.positional import PositionalElastic
from geoveil.space import space_from_dict

VERSION = 1

_GUARANTEES: dict[str, tuple[type[Guarantee], tuple[str, ...]]] = {
    "per-km": (GeoIndistinguishability, ("epsilon_per_km",)),
    "local": (LocalDifferentialPrivacy, ("epsilon",)),
    "within-radius": (WithinRadius, ("radius_km", "epsilon")),
    "between-positions": (BetweenPositions, ("epsilon_per_km", "slack")),
}
"""The kinds of promise that have a document form, and their numbers."""
_DESCRIBED = ("space", "guarantee")
_ENTRIES: dict[str, tuple[str, ...]] = {
    "remapped": ("of", "map"),
    "dense": ("matrix", *_DESCRIBED),
    ContinuousLaplace.name: ("parameters",),
}
"""What a document has beside its name, where it is not parameters, space and guarantee."""

AnyMechanism = Channel | ContinuousLaplace
_Read = TypeVar("_Read")


def mechanism_to_dict(mechanism: AnyMechanism) -> dict[str, Any]:
    """The mechanism as plain JSON values: what it is called, where, with which parameters."""
    return {"geoveil": VERSION, **_body(mechanism)}


def _body(mechanism: AnyMechanism) -> dict[str, Any]:
    if isinstance(mechanism, ContinuousLaplace):
        parameters = {"epsilon_per_km": mechanism.epsilon_per_km}
        return {"mechanism": mechanism.name, "parameters": parameters}
    if isinstance(mechanism, Remapped):
        inner, table = _body(mechanism.channel), mechanism.map.tolist()
        return {"mechanism": "remapped", "of": inner, "map": table}
    if isinstance(mechanism, Mechanism):
        stated = {"mechanism": mechanism.name, "parameters": mechanism.parameters()}
    elif isinstance(mechanism, DenseChannel):
        stated = {"mechanism": "dense", "matrix": mechanism.matrix().tolist()}
    else:
        raise Unsupported(
            f"{type(mechanism).__name__} has no document form; save the mechanism it was made from"
        )
    claim = mechanism.guarantee
    promise = None if claim is None else {"kind": _kind(claim)}
    if promise is not None:
        promise |= {name: getattr(claim, name) for name in _GUARANTEES[promise["kind"]][1]}
    return {**stated, "space": mechanism.space.to_dict(), "guarantee": promise}


def _kind(guarantee: Guarantee) -> str:
    for kind, (guarantees, _) in _GUARANTEES.items():
        if type(guarantee) is guarantees:
            return kind
    raise Unsupported(f"only the guarantees {', '.join(_GUARANTEES)} have a document form")


def mechanism_from_dict(values: object) -> AnyMechanism:
    """The mechanism that a document describes; a clear error for anything else.

    A document that claims less than its law loses is refused. One as a collector publishes it is checked
    and read as well.
    """
    if isinstance(values, Mapping) and values.get("kind") == KIND:
        return MechanismDocument.read(values).mechanism
    return _read(values, believed=True)[0]


def mechanism_and_claim(values: object) -> tuple[AnyMechanism, Guarantee | None]:
    """A mechanism and what its document claims, believed or not: ``certify`` says whether it holds."""
    if not isinstance(values, Mapping) or values.get("kind") != KIND:
        return _read(values, believed=False)
    published = MechanismDocument.read(values, certified=True)  # sound but for its promise
    return published.channel(None), published.promise


def _read(values: object, *, believed: bool) -> tuple[AnyMechanism, Guarantee | None]:
    version = values.get("geoveil") if isinstance(values, Mapping) else None
    if not isinstance(values, Mapping) or type(version) is not int or version != VERSION:
        raise InvalidFile(f'a mechanism document must say "geoveil": {VERSION}')
    body = {name: value for name, value in values.items() if name != "geoveil"}
    try:
        return _build(body, believed=believed)
    except (KeyError, TypeError, AttributeError) as problem:
        raise InvalidFile(f"the mechanism document is incomplete or malformed: {problem}") from None


def _build(values: Mapping[str, Any], *, believed: bool) -> tuple[AnyMechanism, Guarantee | None]:
    """The mechanism and the claim of its document: the stronger one, where two are made.

    What is to be believed is checked here; else the mechanism promises what its law does.
    """
    name = values["mechanism"]
    possible = {"mechanism", *_ENTRIES.get(str(name), ("parameters", *_DESCRIBED))}
    unknown = set(values) - possible
    if unknown:
        raise InvalidFile(
            f"a document of {name!r} must have no entries but {', '.join(sorted(possible))}; "
            f"{len(unknown)} are unknown"
        )
    if name == "remapped":
        inner, claim = _build(values["of"], believed=believed)
        if not isinstance(inner, Channel):
            raise InvalidFile("only channels over cells can be remapped")
        return Remapped(inner, values["map"]), claim
    if name == ContinuousLaplace.name:
        noise = ContinuousLaplace(**values["parameters"])
        return noise, noise.guarantee
    space, claimed = space_from_dict(values["space"]), _claimed(values.get("guarantee"))
    if name == "dense":
        return _kept(DenseChannel(space, values["matrix"]), claimed, claimed, believed), claimed
    mechanisms: dict[str, Any] = {PositionalElastic.name: PositionalElastic, **MECHANISMS}
    if name not in mechanisms:
        raise InvalidFile(
            f"mechanism ({name!r}) must be one of {', '.join(MECHANISMS)}, dense, remapped"
        )
    parameters, stated = {**values["parameters"]}, None
    if "beta_per_km" in parameters and "epsilon_per_km" in parameters:
        stated = GeoIndistinguishability(parameters.pop("epsilon_per_km"))
    law: Channel = mechanisms[name](space, **parameters)
    if isinstance(claimed, BetweenPositions):
        stated = claimed  # rounder than what the law was certified to lose
    own = law.guarantee if stated is None else stated
    if claimed is not None and (own is None or type(claimed) is not type(own)):
        wanted = "null" if own is None else f"of kind {_kind(own)}"
        raise InvalidFile(f"the guarantee of {name} must be {wanted}")
    # more loss than it has may be claimed
    claim = own if claimed is None or (own is not None and own.implies(claimed)) else claimed
    return _kept(law, claim, stated, believed), claim


def _kept(
    law: Channel, claim: Guarantee | None, stated: Guarantee | None, believed: bool
) -> Channel:
    """The law with what its document states, after a check of all that it claims."""
    if claim is None or not believed:
        return law
    try:
        check_claim(law, claim)
        return law if stated is None else promising(law, stated)
    except InvalidInput as problem:
        raise InvalidFile(str(problem)) from None


def _claimed(values: Mapping[str, Any] | None) -> Guarantee | None:
    if values is None:
        return None
    if not isinstance(values, Mapping):
        raise InvalidFile("a guarantee must have a kind and its numbers")
    numbers = dict(values)
    kind = numbers.pop("kind")
    if kind not in _GUARANTEES:
        raise InvalidFile(f"guarantee ({kind!r}) must be one of {', '.join(_GUARANTEES)}")
    return _GUARANTEES[kind][0](**numbers)


def save_mechanism(mechanism: AnyMechanism, path: str | Path) -> None:
    """Write the mechanism's document; beside its name first, so that a failure leaves the old one."""
    data = canonical_bytes(mechanism_to_dict(mechanism)) + b"\n"
    with replaced_file(path) as handle:
        handle.write(data)


def load_mechanism(path: str | Path) -> AnyMechanism:
    """Read a mechanism's document; one that claims less than its law loses is refused."""
    return _loaded(path, mechanism_from_dict)


def load_mechanism_and_claim(path: str | Path) -> tuple[AnyMechanism, Guarantee | None]:
    """Read a mechanism's document and its claim, believed or not, for an audit."""
    return _loaded(path, mechanism_and_claim)


def load_published(path: str | Path) -> MechanismDocument | None:
    """The document of a collector in a file, its promise not yet checked; ``None`` for anything else."""

    def read(values: object) -> MechanismDocument | None:
        published = isinstance(values, Mapping) and values.get("kind") == KIND
        return MechanismDocument.read(values, certified=True) if published else None  # type: ignore[arg-type]

    return _loaded(path, read)


def _loaded(path: str | Path, read: Callable[[object], _Read]) -> _Read:
    try:
        values = strict_json(Path(path).read_bytes())
    except (ValueError, RecursionError):
        raise InvalidFile(
            f"{path} must be a JSON mechanism document in UTF-8 that names no entry twice"
        ) from None
    try:
        return read(values)
    except GeoveilError as problem:
        raise InvalidFile(f"{path}: {problem}") from None
