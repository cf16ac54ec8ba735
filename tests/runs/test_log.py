import sys
from pathlib import Path
from types import SimpleNamespace

import jax.numpy as jnp
import pytest

from phimu.errors import InputError
from phimu.runs.log import MetricsLog, read_metrics


def write(path: Path, resume_step: int | None, *steps: int, **mirrors) -> None:
    log = MetricsLog(path, resume_step, **mirrors)
    for step in steps:
        log.write(step, "train", {"loss": step / 3})
    log.close()


def steps_in(path: Path) -> list[int]:
    return [row["step"] for row in read_metrics(path)]


def test_rows_come_back_exactly(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    log = MetricsLog(path, None)
    log.write(1, "train", {"loss": jnp.float32(0.1), "updates": 3})
    log.write(1, "evaluation", {"return": 1 / 3})
    log.sync()
    assert read_metrics(path) == [  # already there, before close
        {"step": 1, "kind": "train", "loss": float(jnp.float32(0.1)), "updates": 3.0},
        {"step": 1, "kind": "evaluation", "return": 1 / 3},
    ]
    log.close()


def test_resume_drops_the_rows_beyond_and_no_other(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    write(path, None, 10, 20, 30, 40)
    undisturbed = path.read_bytes()
    write(path, 20, 30, 40)
    assert path.read_bytes() == undisturbed
    write(path, 20)
    assert steps_in(path) == [10, 20]


def test_without_a_checkpoint_the_log_starts_empty(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    write(path, None, 0, 10)
    write(path, None, 0)
    assert steps_in(path) == [0]


@pytest.mark.parametrize("torn", [b'{"step": 30, "kind": "tr', b'{"step": 3', b"\0\0\0\0", b"3\n"])
def test_torn_last_line_is_left_out(tmp_path: Path, torn: bytes) -> None:
    path = tmp_path / "metrics.jsonl"
    write(path, None, 10, 20)
    whole = path.read_bytes()
    path.write_bytes(whole + torn)
    assert steps_in(path) == [10, 20]
    write(path, 100)
    assert path.read_bytes() == whole


def test_whole_last_line_that_lacks_only_its_end_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    write(path, None, 10, 20)
    path.write_bytes(path.read_bytes().removesuffix(b"\n"))
    write(path, 20, 30)
    assert steps_in(path) == [10, 20, 30]


def test_damage_in_the_middle_is_named_and_nothing_is_lost(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    write(path, None, 10, 20)
    path.write_bytes(path.read_bytes().replace(b'"step": 10', b'"step": ten'))
    before = path.read_bytes()
    for read in (lambda: read_metrics(path), lambda: MetricsLog(path, 10)):
        with pytest.raises(InputError, match="Line 1 of"):
            read()
    assert path.read_bytes() == before


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_not_a_number_is_an_error_and_leaves_no_row(tmp_path: Path, value: float) -> None:
    log = MetricsLog(tmp_path / "metrics.jsonl", None)
    with pytest.raises(ValueError, match=r"nce_loss is .* at step 7"):
        log.write(7, "train", {"bonus": 0.5, "nce_loss": value})
    log.close()
    assert read_metrics(tmp_path / "metrics.jsonl") == []


def test_missing_log_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no metrics log"):
        read_metrics(tmp_path / "metrics.jsonl")


def test_tensorboard_shows_each_step_once_after_a_resume(tmp_path: Path) -> None:
    accumulators = pytest.importorskip(
        "tensorboard.backend.event_processing.event_accumulator",
        reason="tensorboard, an extra, is not installed",
    )
    for resume_step, steps in [(None, (10, 20, 30)), (20, (30, 40))]:
        write(tmp_path / "m", resume_step, *steps, tensorboard_dir=tmp_path / "events")
    assert len(list((tmp_path / "events").iterdir())) == 2
    accumulator = accumulators.EventAccumulator(str(tmp_path / "events"))
    accumulator.Reload()
    assert accumulator.Tags()["scalars"] == ["train/loss"]
    events = accumulator.Scalars("train/loss")
    assert [event.step for event in events] == [10, 20, 30, 40]
    assert [event.value for event in events] == pytest.approx([10 / 3, 20 / 3, 10, 40 / 3])


def test_wandb_is_given_the_options_and_the_rows(tmp_path: Path, monkeypatch) -> None:
    calls = []
    run = SimpleNamespace(
        log=lambda values, step: calls.append((values, step)),
        finish=lambda: calls.append("finish"),
    )
    wandb = SimpleNamespace(init=lambda **options: calls.append(options) or run)
    monkeypatch.setitem(sys.modules, "wandb", wandb)
    write(tmp_path / "m", None, 3, wandb={"project": "p"})
    assert calls == [{"project": "p"}, ({"train/loss": 1.0}, 3), "finish"]


@pytest.mark.parametrize(
    ("module", "extra", "mirror"),
    [
        ("tensorboard.summary.writer.event_file_writer", "tensorboard", "tensorboard_dir"),
        ("wandb", "wandb", "wandb"),
    ],
)
def test_missing_extra_is_named(tmp_path: Path, monkeypatch, module, extra, mirror) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    value = {} if extra == "wandb" else tmp_path / "events"
    with pytest.raises(InputError, match=rf'pip install "phimu\[{extra}\]"'):
        MetricsLog(tmp_path / "m", None, **{mirror: value})
