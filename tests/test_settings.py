"""Settings by the names of their fields: what can be set, chosen, changed and what is refused."""

from dataclasses import dataclass, fields
from typing import Any, NamedTuple

import numpy as np
import pytest

from phimu.agents import preset
from phimu.errors import InputError
from phimu.settings import choices, chosen, kind, names, override, part, walk


@dataclass(frozen=True)
class Round:
    radius: float = 1.0


@dataclass(frozen=True)
class Square:
    side: float = 2.0
    tilt: float = 0.0

    def __post_init__(self) -> None:
        if self.side <= 0:
            raise InputError(f"side is {self.side}: give a positive number.")


@dataclass(frozen=True)
class Paint:
    colour: str = "red"
    coats: tuple[int, ...] = (1, 2)


# One by its class, one by where it is, so that it is imported when it is chosen.
SHAPES = {"round": Round, "square": Square, "fraction": "fractions:Fraction"}


@dataclass(frozen=True)
class Sign:
    shape: Any = part(Round(), SHAPES)
    paint: Paint = Paint()
    text: str = ""


@dataclass(frozen=True)
class Pole:
    height: float = 3.0
    lamp: Paint | None = None


class Both(NamedTuple):
    sign: Sign = Sign()
    pole: Pole = Pole()


SHAPE, PAINT, _ = fields(Sign)


# Choices


def test_a_part_has_its_default_and_its_choices():
    assert Sign().shape == Round()
    assert choices(SHAPE) == SHAPES
    assert choices(PAINT) == {}


def test_chosen_and_kind_are_each_others_inverse():
    assert (chosen(SHAPE, "round"), chosen(SHAPE, "square")) == (Round, Square)
    assert chosen(SHAPE, "fraction").__name__ == "Fraction"
    assert kind(SHAPE, Square(5.0)) == "square"
    assert kind(SHAPE, Round()) == "round"


def test_an_unknown_choice_gets_the_known_ones():
    with pytest.raises(InputError, match="shape is 'oval': choose one of round, square, fraction"):
        chosen(SHAPE, "oval")
    with pytest.raises(InputError, match="shape is 'oval'"):
        override((Sign(),), {"shape": "oval"})


# Names


def test_walk_gives_every_field_and_its_value_of_nested_parts_too():
    found = [(field.name, value) for field, value in walk(Sign(text="no"))]
    assert found == [
        ("shape", Round()),
        ("radius", 1.0),
        ("paint", Paint()),
        ("colour", "red"),
        ("coats", (1, 2)),
        ("text", "no"),
    ]


def test_names_are_of_what_can_be_set():
    """A chosen part by its name and its fields, a fixed part by its fields alone."""
    assert names((Sign(),)) == ["shape", "radius", "colour", "coats", "text"]
    square = Both(Sign(shape=Square()))
    assert names(square) == ["shape", "side", "tilt", "colour", "coats", "text", "height", "lamp"]


# Override


def test_a_field_is_changed_by_its_name_alone_and_the_rest_stays():
    before = Both()
    after = override(before, {"radius": 4.0, "coats": (3,), "height": 1.0})
    assert after == Both(Sign(Round(4.0), Paint(coats=(3,))), Pole(1.0))
    assert type(after) is Both  # and not merely a tuple
    assert before == Both()
    assert override(before, {}) == before


def test_a_choice_by_name_comes_with_its_defaults_and_its_own_fields_can_be_set():
    assert override((Sign(),), {"shape": "square"}) == (Sign(Square()),)
    for changes in ({"shape": "square", "tilt": 0.5}, {"tilt": 0.5, "shape": "square"}):
        assert override((Sign(),), changes) == (Sign(Square(tilt=0.5)),)


def test_a_choice_that_was_made_already_keeps_what_was_set():
    square = (Sign(Square(5.0, 0.1)),)
    assert override(square, {"shape": "square"}) == square
    assert override(square, {"shape": "square", "tilt": 0.2}) == (Sign(Square(5.0, 0.2)),)
    assert override(square, {"shape": "round"}) == (Sign(Round()),)  # nothing is carried over


def test_a_part_can_be_given_as_a_whole():
    assert override((Sign(),), {"shape": Square(7.0)}) == (Sign(Square(7.0)),)


def test_a_field_that_may_be_none_can_be_set_to_either():
    assert override((Pole(),), {"lamp": Paint("blue")}) == (Pole(lamp=Paint("blue")),)
    assert override((Pole(lamp=Paint()),), {"colour": "blue"}) == (Pole(lamp=Paint("blue")),)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"hight": 2.0}, "There is no setting 'hight': did you mean height?"),
        ({"side": 2.0}, "There is no setting 'side': "),  # of another choice than this one
        ({"shape": "square", "radius": 2.0}, "There is no setting 'radius': "),
        ({"paint": Paint()}, "There is no setting 'paint': "),  # its fields are set one by one
        ({"zzz": 0}, "shape, radius, colour, coats, text, height, lamp."),
    ],
)
def test_an_unknown_name_is_refused_with_the_nearest_or_with_all(changes, message):
    before = Both()
    with pytest.raises(InputError) as refused:
        override(before, changes)
    assert message in str(refused.value)
    assert before == Both()


def test_a_value_is_checked_by_the_part_that_has_it():
    with pytest.raises(InputError, match="side is -1"):
        override((Sign(),), {"shape": "square", "side": -1})


def test_changes_are_not_used_up():
    changes = {"shape": "square", "side": 3.0}
    override((Sign(),), changes)
    assert changes == {"shape": "square", "side": 3.0}


def test_whether_a_run_collects_is_no_setting():
    """A schedule for logged data stays one, whatever is overridden."""
    chosen = preset("td3-bc", "small", logged=True)
    assert "collection" not in names(chosen)
    with pytest.raises(InputError, match="There is no setting 'collection'"):
        override(chosen, {"collection": None})


# Types


@pytest.mark.parametrize(
    ("name", "value", "stored"),
    [
        ("coats", [3, 4], (3, 4)),
        ("coats", np.array([3, 4]), (3, 4)),
        ("coats", (3.0,), (3,)),
        ("height", 2, 2.0),
        ("height", np.float32(0.5), 0.5),
        ("colour", "blue", "blue"),
    ],
)
def test_a_value_takes_the_type_of_its_field(name: str, value: Any, stored: Any) -> None:
    found = {
        each.name: value for top in override(Both(), {name: value}) for each, value in walk(top)
    }
    assert found[name] == stored
    assert type(found[name]) is type(stored)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"batch_size": "64"}, "batch_size is '64': give an integer."),
        ({"batch_size": 64.5}, "batch_size is 64.5: give an integer."),
        ({"batch_size": True}, "batch_size is True: give an integer."),
        ({"buffer_size": float("inf")}, "buffer_size is inf: give an integer."),
        ({"discount": "high"}, "discount is 'high': give a number."),
        ({"actor_sizes": 64}, "actor_sizes is 64: give a tuple of integers."),
        ({"actor_sizes": "64"}, "actor_sizes is '64': give a tuple of integers."),
        ({"actor_sizes": ["a"]}, "actor_sizes is ['a']: give a tuple of integers."),
        ({"fourier": (3,)}, "fourier is (3,): give a tuple of an integer and a number or none."),
        ({"target_entropy": "x"}, "target_entropy is 'x': give a number or none."),
        ({"learn_temperature": 1}, "learn_temperature is 1: give true or false."),
        ({"critic": "deep"}, "critic is 'deep': give one of linear, "),
        ({"ratio": 5}, "ratio is 5: choose one of exponential, linear."),
    ],
)
def test_a_value_of_another_type_is_one_sentence(changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError) as refused:
        override(preset("ctrl-ucb-m", "small"), changes)
    assert str(refused.value).startswith(sentence)
