"""Configurations as plain JSON and back, their hash, and how two of them differ."""

import dataclasses
import hashlib
import json
import math
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from phimu.errors import InputError
from phimu.settings import choices, chosen, kind


def to_json(config: Any, prefix: str = "") -> dict[str, Any]:
    """A nested dataclass; tuples are lists, a part chosen by name has that name as its "kind"."""
    plain = {}
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        plain[field.name] = _plain(value, prefix + field.name)
        if choices(field):
            plain[field.name] = {"kind": kind(field, value)} | plain[field.name]
    return plain


def _plain(value: Any, name: str) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return to_json(value, f"{name}.")
    if isinstance(value, list | tuple):
        return [_plain(item, f"{name}.{index}") for index, item in enumerate(value)]
    if isinstance(value, dict):
        return {str(key): _plain(item, f"{name}.{key}") for key, item in value.items()}
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, float) and not math.isfinite(value):
        raise InputError(f"The setting {name} is {value}: give a finite number.")
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise InputError(
        f"The setting {name} is {value!r}, which has no JSON form: "
        "give a number, a text, a list or a dataclass."
    )


def from_json(made: type[Any], values: dict[str, Any]) -> Any:
    """The dataclass that `to_json` made these values from.

    A field that came after the values were written takes its default, which is what phimu did
    before it; a field that is no more is an error.
    """
    hints, known = typing.get_type_hints(made), {f.name: f for f in dataclasses.fields(made)}
    unknown = values.keys() - known.keys()
    if unknown:
        raise InputError(
            f"{made.__name__} no longer has {', '.join(sorted(unknown))}, which the stored "
            "configuration sets: use the version of phimu that manifest.json names."
        )

    def back(name: str, value: Any) -> Any:
        if isinstance(value, dict) and choices(known[name]):
            own = {key: item for key, item in value.items() if key != "kind"}
            return from_json(chosen(known[name], value["kind"]), own)
        for hint in (hints[name], *typing.get_args(hints[name])):  # a dataclass, or one or None
            if isinstance(value, dict) and dataclasses.is_dataclass(hint):
                return from_json(typing.cast(type, hint), value)
        return tuple(value) if isinstance(value, list) else value

    return made(**{name: back(name, value) for name, value in values.items()})


def config_hash(config: dict[str, Any]) -> str:
    """Eight hex digits that do not depend on the order of the keys."""
    return hashlib.sha256(canonical(config).encode()).hexdigest()[:8]


def canonical(config: dict[str, Any]) -> str:
    return json.dumps(config, sort_keys=True, separators=(",", ":"), allow_nan=False)


def differences(a: dict[str, Any], b: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Fields that differ or that one side lacks, sorted: their dotted name and both as JSON."""
    for name in sorted(a.keys() | b.keys()):
        if isinstance(a.get(name), dict) and isinstance(b.get(name), dict):
            for inner, there, here in differences(a[name], b[name]):
                yield f"{name}.{inner}", there, here
        elif name not in a or name not in b or a[name] != b[name]:
            there, here = (json.dumps(x[name]) if name in x else "(absent)" for x in (a, b))
            yield name, there, here
