"""What a sweep varies: settings within a range or among choices, as the command line writes them.

critic_learning_rate=1e-4..1e-2:log    a range; log: even in the logarithm
batch_size=64,128,256                  choices
actor_sizes=64,64|256,256              choices that have commas in them
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from phimu.errors import InputError
from phimu.settings import hints, names, override, read

DIGITS = 4  # significant, of a number that is drawn: a command that can be typed
FORM = "write it as name=low..high, name=low..high:log or name=one,two,three"


@dataclass(frozen=True)
class Varied:
    """A setting, and what it may be: `choices` as texts, or a range."""

    name: str
    choices: tuple[str, ...] = ()
    low: float = 0.0
    high: float = 0.0
    log: bool = False
    whole: bool = False  # integers only

    def text(self, value: Any) -> str:
        """What was drawn, as one would type it."""
        if self.choices:
            return str(value)
        if self.whole:
            return str(int(value))
        rounded = float(f"{float(value):.{DIGITS}g}")
        return f"{min(max(rounded, self.low), self.high):g}"

    def value(self, text: str) -> Any:
        """A text of `text` as the search has it."""
        return text if self.choices else int(text) if self.whole else float(text)

    def count(self) -> float:
        """How many values there are."""
        if self.choices:
            return len(self.choices)
        return self.high - self.low + 1 if self.whole else math.inf


def read_varied(pairs: Sequence[str], parts: tuple[Any, ...]) -> tuple[Varied, ...]:
    """Of `name=...` each; InputError where the settings `parts` have no such thing."""
    found: dict[str, Varied] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        name = name.replace("-", "_")
        if not equals or not text:
            raise InputError(f"vary is {pair!r}: {FORM}.")
        if name in found:
            raise InputError(f"vary has {name} twice: leave one out.")
        if name not in names(parts):
            override(parts, {name: text})  # says which there are
        found[name] = _range(name, text, parts) if ".." in text else _choices(name, text, parts)
    if not found:
        raise InputError(f"vary is missing: say what is searched, and {FORM}.")
    return tuple(found.values())


def _choices(name: str, text: str, parts: tuple[Any, ...]) -> Varied:
    separator = "|" if "|" in text else ","
    choices = tuple(text.split(separator))
    if len(set(choices)) < 2 or len(set(choices)) < len(choices):
        raise InputError(f"vary {name} is {text!r}: give at least two different choices.")
    for each in choices:
        read(parts, {name: each})  # what cannot be one says so
    return Varied(name, choices)


def _range(name: str, text: str, parts: tuple[Any, ...]) -> Varied:
    ends, _, scale = text.partition(":")
    try:
        low, high = (float(end) for end in ends.split(".."))
    except ValueError:
        raise InputError(f"vary {name} is {text!r}: {FORM}.") from None
    if scale not in ("", "log"):
        raise InputError(f"vary {name} is {text!r}: after the range comes :log or nothing.")
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise InputError(f"vary {name} is {text!r}: give the lower end first, both finite.")
    if scale and low <= 0:
        raise InputError(f"vary {name} is {text!r}: a logarithm needs a range above 0.")
    kind = hints(parts).get(name)
    if kind not in (int, float):
        raise InputError(f"vary {name} is {text!r}, but {name} is no number: give choices.")
    if kind is int and not (low.is_integer() and high.is_integer()):
        raise InputError(f"vary {name} is {text!r}, but {name} is whole: give integers.")
    made = Varied(name, (), low, high, bool(scale), kind is int)
    for end in (low, high):
        read(parts, {name: made.text(end)})
    return made
