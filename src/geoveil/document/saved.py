"""Mechanisms as documents: canonical JSON that rebuilds the same mechanism anywhere."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from geoveil.channel.certificate import check_claim, promising
from geoveil.channel.channel import Channel
from geoveil.channel.composed import DenseChannel, Remapped, UnpromisedChannel
from geoveil.channel.guarantee import (
    BetweenPositions,
    GeoIndistinguishability,
    Guarantee,
    LocalDifferentialPrivacy,
    WithinRadius,
)
from geoveil.document.canonical import canonical_bytes, file_json
from geoveil.document.wire import KIND, LEVELS, MechanismDocument
from geoveil.errors import GeoveilError, InvalidFile, InvalidInput, Unsupported
from geoveil.files import PIPE, file_name, replaced_file, standard_input
from geoveil.mechanism import MECHANISMS
from geoveil.mechanism.mechanism import Mechanism
from geoveil.mechanism.planar import ContinuousLaplace
from geoveil.position.positional import PositionalElastic
from geoveil.space import space_from_dict

VERSION = 1
LARGEST_FILE = 1 << 29
"""Bytes of a document in a file, at most: a matrix of 4,096 cells and reports takes 350 million."""

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


class Claimed(NamedTuple):
    """A mechanism and what its document claims, believed or not: ``certify`` says whether it holds."""

    mechanism: AnyMechanism
    claim: Guarantee | None
    published: tuple[MechanismDocument, ...] = ()
    """All levels of a round, the strongest promise first, where a collector published them."""

    @classmethod
    def of_levels(cls, levels: tuple[MechanismDocument, ...]) -> Claimed:
        """The strongest promise of a round."""
        return cls(levels[0].channel(None), levels[0].promise, levels)


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
            f"{type(mechanism).__name__} has no document form; save the mechanism it was made from, or its "
            "matrix: gv.DenseChannel(mechanism.space, mechanism.matrix())"
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


def mechanism_and_claim(values: object) -> Claimed:
    """What a document claims; where a collector published it, all is sound but the promise."""
    if isinstance(values, Mapping) and values.get("kind") == LEVELS:
        return Claimed.of_levels(MechanismDocument.of_levels(values, certified=True))
    if isinstance(values, Mapping) and values.get("kind") == KIND:
        return Claimed.of_levels((MechanismDocument.read(values, certified=True),))
    return Claimed(*_read(values, believed=False))


def _read(values: object, *, believed: bool) -> tuple[AnyMechanism, Guarantee | None]:
    version = values.get("geoveil") if isinstance(values, Mapping) else None
    if not isinstance(values, Mapping) or type(version) is not int or version != VERSION:
        if isinstance(values, Mapping) and isinstance(values.get("mechanism"), Mapping):
            raise InvalidFile(
                "a mechanism document must hold nothing else, as a tally does; what stands under "
                '"mechanism" is one by itself: jq .mechanism FILE'
            )
        raise InvalidFile(
            f'a mechanism document must say "geoveil": {VERSION}; geoveil design writes one'
        )
    body = {name: value for name, value in values.items() if name != "geoveil"}
    try:
        return _build(body, believed=believed)
    except KeyError as missing:
        raise InvalidFile(f"a mechanism document must have the entry {missing}") from None
    except (TypeError, AttributeError) as problem:
        raise InvalidFile(f"the mechanism document is malformed: {problem}") from None


def _build(values: Any, *, believed: bool) -> tuple[AnyMechanism, Guarantee | None]:
    """The mechanism and the claim of its document: the stronger one, where two are made.

    What is to be believed is checked here; else the mechanism promises what its law does.
    """
    name = _name_of(values)
    if name == "remapped":
        inner, claim = _build(values["of"], believed=believed)
        if not isinstance(inner, Channel):
            raise InvalidFile("only channels over cells can be remapped")
        return Remapped(inner, values["map"]), claim
    if name == ContinuousLaplace.name:
        noise = ContinuousLaplace(**_parameters(values))
        return noise, noise.guarantee
    space, claimed = space_from_dict(values["space"]), _claimed(values.get("guarantee"))
    if name == "dense":
        if claimed is None and "guarantee" in values:  # which says that nothing is promised
            return UnpromisedChannel(space, values["matrix"]), None
        return _checked(DenseChannel(space, values["matrix"]), claimed, claimed, believed), claimed
    mechanisms: dict[str, Any] = {PositionalElastic.name: PositionalElastic, **MECHANISMS}
    if name not in mechanisms:
        raise InvalidFile(
            f"mechanism ({name!r}) must be one of {', '.join(MECHANISMS)}, dense, remapped"
        )
    parameters, stated = _parameters(values), None
    if "beta_per_km" in parameters and "epsilon_per_km" in parameters:
        stated = GeoIndistinguishability(parameters.pop("epsilon_per_km"))
    law: Channel = mechanisms[name](space, **parameters)
    if isinstance(claimed, BetweenPositions):
        stated = claimed  # rounder than what the law was certified to lose
    own = law.guarantee if stated is None else stated
    if claimed is not None and (own is None or type(claimed) is not type(own)):
        kind = "null" if own is None else f"of kind {_kind(own)}"
        raise InvalidFile(f"the guarantee of {name} must be {kind}")
    # more loss than it has may be claimed
    claim = own if claimed is None or (own is not None and own.implies(claimed)) else claimed
    return _checked(law, claim, stated, believed), claim


def _name_of(values: Any) -> str:
    """What the mechanism is called, where all entries are among those that it may have."""
    if not isinstance(values, Mapping):
        raise InvalidFile("the mechanism that is remapped must be a JSON object")
    name = values["mechanism"]
    if not isinstance(name, str):
        raise InvalidFile("mechanism must be a name in quotes")
    possible = {"mechanism", *_ENTRIES.get(name, ("parameters", *_DESCRIBED))}
    unknown = set(values) - possible
    if unknown:
        raise InvalidFile(
            f"a document of {name!r} must have no entries but {', '.join(sorted(possible))}; "
            f"{len(unknown)} are unknown"
        )
    return name


def _parameters(values: Mapping[str, Any]) -> dict[str, Any]:
    if not isinstance(values["parameters"], Mapping):
        raise InvalidFile("parameters must be a JSON object")
    return dict(values["parameters"])


def _checked(
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


def _claimed(values: Any) -> Guarantee | None:
    if values is None:
        return None
    if not isinstance(values, Mapping) or "kind" not in values:
        raise InvalidFile("a guarantee must have a kind and its numbers")
    numbers = dict(values)
    kind = numbers.pop("kind")
    if not isinstance(kind, str) or kind not in _GUARANTEES:
        raise InvalidFile(f"guarantee ({kind!r}) must be one of {', '.join(_GUARANTEES)}")
    guarantee, names = _GUARANTEES[kind]
    if set(numbers) != {*names}:
        raise InvalidFile(f"a guarantee of kind {kind} must have {' and '.join(names)}, alone")
    return guarantee(**numbers)


def save_mechanism(mechanism: AnyMechanism, path: str | Path) -> None:
    """Write the mechanism's document; beside its name first, so that a failure leaves the old one.

    ``-`` is standard output, and standard input where documents are read.
    """
    data = canonical_bytes(mechanism_to_dict(mechanism)) + b"\n"
    with replaced_file(path) as handle:
        handle.write(data)


def load_mechanism(path: str | Path) -> AnyMechanism:
    """Read a mechanism's document; one that claims less than its law loses is refused."""
    return _loaded(path, mechanism_from_dict)


def load_mechanism_and_claim(path: str | Path) -> Claimed:
    """Read a document and its claim, believed or not, for an audit."""
    return _loaded(path, mechanism_and_claim)


def _loaded(path: str | Path, read: Callable[[object], _Read]) -> _Read:
    name = file_name(path)
    with nullcontext(standard_input()) if name == PIPE else Path(name).open("rb") as handle:
        content = handle.read(LARGEST_FILE + 1)
    name = "standard input" if name == PIPE else name
    if len(content) > LARGEST_FILE:
        raise InvalidFile(f"{name} must be a mechanism document, of at most {LARGEST_FILE:,} bytes")
    words = f"{name} must be a JSON mechanism document in UTF-8 that names no entry twice"
    values = file_json(content, words, doubles=True)
    try:
        return read(values)
    except RecursionError:
        raise InvalidFile(f"{name} must not have that many mechanisms in one another") from None
    except GeoveilError as problem:
        raise InvalidFile(f"{name}: {problem}") from None
