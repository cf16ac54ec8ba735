"""Configurations as plain JSON and back, their hash, and how two of them differ."""

import dataclasses
import hashlib
import json
import math
import typing
from pathlib import Path
from typing import Any

from phimu.errors import InputError


def to_json(config: Any) -> dict[str, Any]:
    """The plain JSON form of a nested dataclass; tuples become lists, functions their names."""
    return {
        field.name: _plain(getattr(config, field.name), field.name)
        for field in dataclasses.fields(config)
    }


def _plain(value: Any, name: str) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {
            field.name: _plain(getattr(value, field.name), f"{name}.{field.name}")
            for field in dataclasses.fields(value)
        }
    if isinstance(value, list | tuple):
        return [_plain(item, f"{name}.{index}") for index, item in enumerate(value)]
    if isinstance(value, dict):
        return {str(key): _plain(item, f"{name}.{key}") for key, item in value.items()}
    if isinstance(value, Path):
        return str(value)
    if callable(value) and "<" not in getattr(value, "__qualname__", "<"):
        return value.__qualname__  # lambdas and closures are out: they all have the same name
    if isinstance(value, float) and not math.isfinite(value):
        raise InputError(f"The setting {name} is {value}: give a finite number.")
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise InputError(
        f"The setting {name} is {value!r}, which has no JSON form: "
        "give a number, a text, a list, a dataclass or a named function."
    )


def from_json(kind: type[Any], values: dict[str, Any]) -> Any:
    """The dataclass that `to_json` made these values from.

    A field that came after the values were written takes its default, which is what phimu did
    before it; a field that is no more is an error.
    """
    hints = typing.get_type_hints(kind)
    unknown = values.keys() - {field.name for field in dataclasses.fields(kind)}
    if unknown:
        raise InputError(
            f"{kind.__name__} no longer has {', '.join(sorted(unknown))}, which the stored "
            "configuration sets: use the version of phimu that manifest.json names."
        )

    def back(hint: Any, value: Any) -> Any:
        if isinstance(hint, type) and dataclasses.is_dataclass(hint):
            return from_json(hint, value)
        return tuple(value) if isinstance(value, list) else value

    return kind(**{name: back(hints[name], value) for name, value in values.items()})


def config_hash(config: dict[str, Any]) -> str:
    """Eight hex digits that do not depend on the order of the keys."""
    return hashlib.sha256(canonical(config).encode()).hexdigest()[:8]


def canonical(config: dict[str, Any]) -> str:
    return json.dumps(config, sort_keys=True, separators=(",", ":"), allow_nan=False)


def differences(a: dict[str, Any], b: dict[str, Any]) -> list[str]:
    """The dotted names of the fields that differ or that only one side has, in sorted order."""
    found = []
    for name in sorted(a.keys() | b.keys()):
        if name not in a or name not in b:
            found.append(name)
        elif isinstance(a[name], dict) and isinstance(b[name], dict):
            found += [f"{name}.{inner}" for inner in differences(a[name], b[name])]
        elif a[name] != b[name]:
            found.append(name)
    return found
