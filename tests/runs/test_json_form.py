import json
from dataclasses import dataclass, field

import pytest

from phimu.errors import InputError
from phimu.runs.json_form import config_hash, differences, from_json, to_json
from phimu.settings import part


@dataclass(frozen=True)
class Inner:
    sizes: tuple[int, ...] = (4, 8)
    loss: object = "max"


@dataclass(frozen=True)
class Other:
    weight: float = 1.0


@dataclass(frozen=True)
class Choosing:
    chosen: object = part(Inner(), {"inner": Inner, "other": f"{__name__}:Other"})


@dataclass(frozen=True)
class Outer:
    rate: float = 0.1
    inner: Inner = Inner()
    extra: dict = field(default_factory=dict)


def test_to_json_is_plain() -> None:
    plain = to_json(Outer())
    assert plain == {"rate": 0.1, "inner": {"sizes": [4, 8], "loss": "max"}, "extra": {}}
    assert json.loads(json.dumps(plain)) == plain


def test_from_json_fills_in_newer_fields_and_refuses_removed_ones() -> None:
    assert from_json(Outer, {"inner": {"sizes": [3]}}) == Outer(inner=Inner(sizes=(3,)))
    with pytest.raises(InputError, match="Inner no longer has widths"):
        from_json(Outer, {"inner": {"widths": [3]}})


def test_a_chosen_part_has_its_name() -> None:
    """Which class it is cannot be told from its fields; those of another kind are refused."""
    for value, plain in (
        (Choosing(), {"kind": "inner", "sizes": [4, 8], "loss": "max"}),
        (Choosing(Other(2.0)), {"kind": "other", "weight": 2.0}),
    ):
        assert to_json(value) == {"chosen": plain}
        assert from_json(Choosing, {"chosen": plain}) == value
    with pytest.raises(InputError, match="Other no longer has sizes"):
        from_json(Choosing, {"chosen": {"kind": "other", "sizes": [3]}})
    with pytest.raises(InputError, match="chosen is 'third': choose one of inner, other"):
        from_json(Choosing, {"chosen": {"kind": "third"}})


@pytest.mark.parametrize("value", [max, lambda x: x, object(), float("nan"), {"deep": {1, 2}}])
def test_to_json_names_what_it_cannot_express(value: object) -> None:
    with pytest.raises(InputError, match=r"inner\.loss"):
        to_json(Outer(inner=Inner(loss=value)))


def test_hash_is_stable_and_ignores_order() -> None:
    # The answer of sha256sum. A changed hash would orphan the directories of earlier runs.
    assert config_hash({"a": 1, "b": {"c": [1, 2], "d": None}}) == "6146dd49"
    assert config_hash({"b": {"d": None, "c": [1, 2]}, "a": 1}) == "6146dd49"
    assert config_hash({"a": 2, "b": {"c": [1, 2], "d": None}}) != "6146dd49"


def test_differences_are_dotted() -> None:
    a = {"x": 1, "y": {"z": 2, "w": [1]}, "only_a": None, "same": "s"}
    b = {"x": 1.5, "y": {"z": 3, "w": [1]}, "only_b": {}, "same": "s"}
    assert list(differences(a, b)) == [
        ("only_a", "null", "(absent)"),
        ("only_b", "(absent)", "{}"),
        ("x", "1", "1.5"),
        ("y.z", "2", "3"),
    ]
    assert list(differences(a, a)) == []
