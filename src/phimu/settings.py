"""Settings are nested frozen dataclasses whose field names are unique; some parts have a choice.

A field made by `part` holds one of several dataclasses, chosen by name: `ratio="linear"`. What one
choice has no use for, such as a temperature, then cannot be set beside it.
"""

import contextlib
import difflib
import importlib
import types
import typing
from collections.abc import Iterator, Mapping
from dataclasses import Field, field, fields, is_dataclass, replace
from numbers import Real
from typing import Any, TypeVar

from phimu.errors import InputError

# A dataclass, or where to import it from: "module:Class".
Choices = Mapping[str, type[Any] | str]


def part(default: Any, choices: Choices) -> Any:
    """A field that holds one of these, by default `default`."""
    return field(default=default, metadata={"choices": choices})


def choices(of: "Field[Any]") -> Choices:
    """Of a field; empty where it has none."""
    return of.metadata.get("choices", {})


def chosen(of: "Field[Any]", name: str) -> type[Any]:
    """The dataclass that a field calls by this name."""
    found = choices(of).get(name)
    if found is None:
        known = ", ".join(choices(of))
        raise InputError(f"{of.name} is {name!r}: choose one of {known}.")
    if isinstance(found, str):
        module, _, attribute = found.partition(":")
        found = getattr(importlib.import_module(module), attribute)
    return found


def kind(of: "Field[Any]", value: Any) -> str:
    """What a field calls the dataclass of this value."""
    return next(name for name in choices(of) if chosen(of, name) is type(value))


def walk(settings: Any) -> Iterator[tuple["Field[Any]", Any]]:
    """Every field and its value, of nested parts too."""
    for each in fields(settings):
        value = getattr(settings, each.name)
        yield each, value
        if is_dataclass(value):
            yield from walk(value)


def names(parts: tuple[Any, ...]) -> list[str]:
    """Of all fields that can be set."""
    return [each.name for top in parts for each, value in walk(top) if _settable(each, value)]


def _settable(each: "Field[Any]", value: Any) -> bool:
    """Whether a field can be set by its name; not whether a run collects at all, for instance."""
    return bool(choices(each)) or not (is_dataclass(value) or each.metadata.get("structure"))


Parts = TypeVar("Parts", bound=tuple[Any, ...])


def override(parts: Parts, changes: Mapping[str, Any]) -> Parts:
    """These settings with some fields changed, by their names alone."""
    left = dict(changes)
    changed = [_override(top, left) for top in parts]
    if left:
        known, name = names(tuple(changed)), next(iter(left))
        close = difflib.get_close_matches(name, known, n=1)
        meant = f"did you mean {close[0]}?" if close else f"there are {', '.join(known)}."
        raise InputError(f"There is no setting {name!r}: {meant}")
    make: Any = getattr(type(parts), "_make", type(parts))
    return make(changed)


def _override(top: Any, left: dict[str, Any]) -> Any:
    """With what is in `left`, which is taken out of it.

    A part that it names has its defaults unless it was chosen already, and then its own changes.
    """
    changed, hints = {}, typing.get_type_hints(type(top))
    for each in fields(top):
        value = before = getattr(top, each.name)
        if each.name in left and _settable(each, value):
            value = left.pop(each.name)
            if choices(each) and isinstance(value, str):
                wanted = chosen(each, value)
                value = before if type(before) is wanted else wanted()
            else:
                value = _fitting(each, hints[each.name], value)
        changed[each.name] = _override(value, left) if is_dataclass(value) else value
    return replace(top, **changed)


def _fitting(of: "Field[Any]", hint: Any, value: Any) -> Any:
    """The value of a setting, if it is of a type that its field allows."""
    if choices(of):
        if any(chosen(of, name) is type(value) for name in choices(of)):
            return value
        raise InputError(f"{of.name} is {value!r}: choose one of {', '.join(choices(of))}.")
    return as_setting(of.name, hint, value)


def as_setting(name: str, hint: Any, value: Any) -> Any:
    """A value as one of the types that it may have; InputError if it is of none of them."""
    allowed = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    for each in allowed:
        with contextlib.suppress(TypeError, ValueError, OverflowError):
            return _as_type(each, value)
    raise InputError(f"{name} is {value!r}: give {' or '.join(map(_kind, allowed))}.")


def _as_type(wanted: Any, value: Any) -> Any:
    """A list as a tuple, NumPy's numbers as Python's, 1e6 as an integer; errors for what is not.

    Of other types than settings have so far nothing is asked.
    """
    inner, origin = typing.get_args(wanted), typing.get_origin(wanted)
    if origin is tuple and not isinstance(value, str | bytes | Mapping):
        each = list(value)
        inner = inner[:1] * len(each) if Ellipsis in inner else inner
        return tuple(_as_type(*pair) for pair in zip(inner, each, strict=True))
    boolean = isinstance(value, bool)
    if wanted in (int, float) and isinstance(value, Real) and not boolean:
        number = wanted(value)
        fits = number == value or wanted is float
    elif wanted in (int, float, bool, str, types.NoneType):
        number = value
        fits = isinstance(value, wanted) and (wanted is bool) == boolean
    else:
        number = value
        fits = origin not in (tuple, typing.Literal) or value in inner
    if not fits:
        raise TypeError
    return number


def _kind(allowed: Any) -> str:
    """Of a value, in words."""
    inner = typing.get_args(allowed)
    if typing.get_origin(allowed) is not tuple:
        return _wanted(allowed)
    if Ellipsis in inner:
        return f"a tuple of {_wanted(inner[0]).split()[-1]}s"
    return f"a tuple of {' and '.join(map(_wanted, inner))}"


def read(parts: Parts, texts: Mapping[str, str]) -> Parts:
    """These settings with those of `texts` that they have: 8,8 is a tuple, none is None."""
    every = [each.name for top in parts for each, _ in walk(top) if choices(each)]
    parts = override(parts, {name: texts[name] for name in every if name in texts})
    known = hints(parts)
    plain = {name: text for name, text in texts.items() if name in known}
    return override(parts, {name: _value(name, known[name], text) for name, text in plain.items()})


def hints(parts: tuple[Any, ...]) -> dict[str, Any]:
    """The type of every setting that is a value, by its name."""
    return {name: hint for top in parts for name, hint in _hints(top)}


def _hints(top: Any) -> Iterator[tuple[str, Any]]:
    """The type of every field that is no part, of nested parts too."""
    own = typing.get_type_hints(type(top))
    for each in fields(top):
        value = getattr(top, each.name)
        if is_dataclass(value):
            yield from _hints(value)
        else:
            yield each.name, own[each.name]


def _value(name: str, hint: Any, text: str) -> Any:
    """A setting from its text, of one of the types that its field allows."""
    allowed = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    for each in allowed:
        try:
            return _of_type(each, text)
        except (ValueError, KeyError):
            continue
    raise InputError(f"{name} is {text!r}: give {' or '.join(_wanted(each) for each in allowed)}.")


_WORDS = {"none": None, "true": True, "false": False}


def _of_type(wanted: Any, text: str) -> Any:
    """ValueError or KeyError where the text is of no such type."""
    inner = typing.get_args(wanted)
    if typing.get_origin(wanted) is tuple:
        each = text.split(",")
        inner = inner[:1] * len(each) if Ellipsis in inner else inner
        return tuple(_of_type(*pair) for pair in zip(inner, each, strict=True))
    if typing.get_origin(wanted) is typing.Literal:
        return inner[inner.index(text)]
    if wanted in (int, float, str):
        return wanted(text)
    word = _WORDS[text.lower()]
    if type(word) is not wanted:
        raise ValueError
    return word


def _wanted(allowed: Any) -> str:
    inner = typing.get_args(allowed)
    if typing.get_origin(allowed) is tuple:
        if Ellipsis in inner:
            return "integers with commas between"
        return " and ".join(_wanted(each) for each in inner) + " with a comma between"
    if inner:
        return f"one of {', '.join(inner)}"
    kinds = {int: "an integer", float: "a number", bool: "true or false", str: "a text"}
    return kinds.get(allowed, "none")
