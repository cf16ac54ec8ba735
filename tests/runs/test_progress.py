import io

import pytest
from rich.console import Console

from phimu.runs.progress import WHOLE, Progress, Stretch, duration, number


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_plain_line_holds_everything(capsys) -> None:
    clock = Clock()
    with Progress(20_000, 0, clock=clock) as progress:
        clock.now = 30.0
        progress.update(
            12_360, {"return": -312.41, "nce_loss": 0.4149, "nce_accuracy": 0.88, "bonus": 0.02}
        )
    assert capsys.readouterr().out == (
        "step 12,360/20,000  412 steps/s  left 0:19  "
        "return -312.4  nce_loss 0.415  nce_accuracy 0.88  bonus 0.02\n"
    )


def test_plain_lines_come_every_ten_seconds_at_evaluations_and_at_the_end(capsys) -> None:
    clock = Clock()
    with Progress(1_000, 0, clock=clock) as progress:
        for step in range(1, 251):  # ten steps per second
            clock.now = step / 10
            values = {"return": 5.0} if step == 30 else {}
            progress.update(step, values, evaluation=step == 30)
    lines = capsys.readouterr().out.splitlines()
    assert [line.split("  ")[0] for line in lines] == [
        "step 30/1,000",
        "step 130/1,000",
        "step 230/1,000",
        "step 250/1,000",
    ]
    assert all(line.endswith("return 5") for line in lines)  # the latest value stays


def test_speed_is_that_of_the_recent_past_and_of_this_session(capsys) -> None:
    clock = Clock()
    with Progress(2_000_000, 1_000_000, clock=clock) as progress:
        step = 1_000_000
        for second in range(1, 301):
            clock.now = float(second)
            step += 1 if second <= 200 else 100
            progress.update(step, {})
    assert "  100 steps/s  left 2:44:58" in capsys.readouterr().out.splitlines()[-1]


def test_values_are_not_read_until_they_are_shown(capsys) -> None:
    class OnDevice:
        reads = 0

        def __float__(self) -> float:
            self.reads += 1
            return 1.0

    clock, loss = Clock(), OnDevice()
    progress = Progress(100, 0, clock=clock)
    for step in range(1, 50):
        progress.update(step, {"loss": loss})
    assert loss.reads == 0
    clock.now = 11.0
    progress.update(50, {"loss": loss})
    assert loss.reads == 1
    assert "loss 1" in capsys.readouterr().out


def test_the_warm_up_is_no_part_of_the_time_left(capsys) -> None:
    """1,000 random steps a second, then a compilation of 20 seconds, then ten steps a second."""
    clock = Clock()
    with Progress(2_000, 0, clock=clock) as progress:
        for step in range(100, 1_000, 100):
            clock.now += 0.1
            progress.update(step, {"return": 1.0}, stretch=Stretch("warm-up", 1_000))
        progress.update(950, {}, evaluation=True, stretch=Stretch("warm-up", 1_000))
        clock.now += 20.0
        progress.update(1_000, {}, stretch=WHOLE)
        for step in range(1_001, 1_201):
            clock.now += 0.1
            progress.update(step, {"td_loss": 0.5}, stretch=WHOLE)
    first, *_, last = capsys.readouterr().out.splitlines()
    assert first == "step 950/2,000  1,056 steps/s  warm-up left 0:00  return 1"
    assert last == "step 1,200/2,000  10 steps/s  left 1:20  td_loss 0.5"


def test_each_phase_has_its_name_its_speed_and_its_losses(capsys) -> None:
    clock = Clock()
    phases = (("representation", 300, "nce_loss", 0.1), ("behaviour", 500, "behaviour_loss", 1.0))
    with Progress(900, 0, clock=clock) as progress:
        step = 0
        for name, end, loss, seconds in phases:
            while step < end - 50:
                step, clock.now = step + 50, clock.now + 50 * seconds
                progress.update(step, {loss: 0.25}, stretch=Stretch(name, end))
            step = end
        clock.now += 5.0
        progress.update(600, {"td_loss": 2.0}, stretch=Stretch("policy", None))
        clock.now += 50.0
        progress.update(700, {"td_loss": 1.0}, stretch=Stretch("policy", None))
    lines = capsys.readouterr().out.splitlines()
    assert "step 200/900  10 steps/s  representation left 0:10  nce_loss 0.25" in lines
    assert "step 450/900  1 steps/s  behaviour left 0:50  behaviour_loss 0.25" in lines
    assert lines[-1] == "step 700/900  2 steps/s  policy left 1:40  td_loss 1"


def test_before_any_progress_the_time_left_is_unknown(capsys) -> None:
    with Progress(100, 40, clock=Clock()) as progress:
        progress.update(40, {}, evaluation=True)
    assert capsys.readouterr().out == "step 40/100  0 steps/s  left ?\n"


def test_quiet_prints_nothing(capsys) -> None:
    with Progress(100, 0, quiet=True) as progress:
        progress.update(50, {"loss": 1.0}, evaluation=True)
        progress.line("hello")
    assert capsys.readouterr() == ("", "")


def test_terminal_has_one_line_with_messages_above_it() -> None:
    clock, screen = Clock(), io.StringIO()
    console = Console(
        file=screen, force_terminal=True, width=100, _environ={"TERM": "xterm-256color"}
    )
    with Progress(100, 0, console=console, clock=clock) as progress:
        clock.now = 5.0
        progress.update(50, {"nce_loss": 0.25})
        progress.line("[message] above")
        clock.now = 10.0
        progress.update(100, {"a_metric_with_a_very_long_name" * 3: 0.5})
    drawn = screen.getvalue()
    assert "step 50/100  10 steps/s  left 0:05  nce_loss 0.25" in drawn
    assert "[message] above\n" in drawn
    assert "step 100/100  10 steps/s  left 0:00" in drawn
    assert drawn.count("\n") == 2  # the message and the end: the bar itself never wraps


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0"),
        (0.000_012_34, "1.23e-05"),
        (0.5678, "0.568"),
        (-12.345, "-12.3"),
        (-312.44, "-312.4"),
        (12_345.6, "12,346"),
        (1.234e7, "1.23e+07"),
        (float("nan"), "nan"),
    ],
)
def test_number(value: float, text: str) -> None:
    assert number(value) == text


@pytest.mark.parametrize(
    ("seconds", "text"), [(-1, "0:00"), (19.4, "0:19"), (59.6, "1:00"), (100_000, "27:46:40")]
)
def test_duration(seconds: float, text: str) -> None:
    assert duration(seconds) == text
