import json
import os
import shutil
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from phimu.errors import InputError
from phimu.runs import checkpoint
from phimu.runs.files import fingerprint

FILES = [checkpoint.ARRAYS, checkpoint.FACTS, checkpoint.MANIFEST]


def some_arrays(step: int) -> dict[str, np.ndarray]:
    return {"weight": np.full((3, 2), step, np.float32), "count": np.asarray(step, np.int32)}


def save(directory: Path, *steps: int) -> None:
    for step in steps:
        checkpoint.save(directory, step, some_arrays(step), {"step": step})


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def flip_bit(path: Path, position: int, bit: int) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 1 << bit
    path.write_bytes(data)


def test_agent_and_optimiser_come_back_bit_for_bit(tmp_path: Path) -> None:
    def state(seed: int):
        mlp = eqx.nn.MLP(3, 2, 8, 2, key=jax.random.PRNGKey(seed))
        return {"mlp": mlp, "adam": optax.adam(1e-3).init(eqx.filter(mlp, eqx.is_array))}

    written = state(0)
    gradient = jax.tree.map(lambda x: jnp.sin(x + 1), eqx.filter(written["mlp"], eqx.is_array))
    _, written["adam"] = optax.adam(1e-3).update(gradient, written["adam"])
    facts = {"rng": 2**127 + 1, "task": "Ölämpchen"}
    checkpoint.save(tmp_path, 12_345, checkpoint.flatten(written), facts)
    assert names(tmp_path) == ["step-000012345"]

    loaded = checkpoint.load(tmp_path)
    assert loaded is not None
    assert (loaded.step, loaded.facts) == (12_345, facts)
    restored = checkpoint.restore(state(1), loaded.arrays)
    assert jax.tree.structure(restored) == jax.tree.structure(state(1))
    for old, new in zip(jax.tree.leaves(written), jax.tree.leaves(restored), strict=True):
        if eqx.is_array(old):
            assert isinstance(new, jax.Array)
            assert new.dtype == old.dtype
            assert np.asarray(new).tobytes() == np.asarray(old).tobytes()
        else:
            assert new is old


@pytest.mark.parametrize(
    "array",
    [
        np.arange(6.0).reshape(2, 3).T,
        np.arange(10, dtype=np.int64)[::3],
        np.asarray(3.5, np.float32),
        np.zeros((0, 4), np.float32),
        np.asarray([True, False]),
        np.asarray(jnp.arange(3, dtype=jnp.bfloat16)),
    ],
    ids=["transposed", "strided", "scalar", "empty", "bool", "bfloat16"],
)
def test_each_kind_of_array_is_kept(tmp_path: Path, array: np.ndarray) -> None:
    checkpoint.save(tmp_path, 1, {"x": array}, {})
    loaded = checkpoint.load(tmp_path)
    assert loaded is not None
    assert loaded.arrays["x"].dtype == array.dtype
    np.testing.assert_array_equal(loaded.arrays["x"], array, strict=True)


def test_loaded_arrays_can_be_written_without_touching_the_file(tmp_path: Path) -> None:
    save(tmp_path, 1)
    loaded = checkpoint.load(tmp_path)
    assert loaded is not None
    loaded.arrays["weight"][:] = 7
    again = checkpoint.load(tmp_path)
    assert again is not None
    assert np.all(again.arrays["weight"] == 1)


def test_flatten_refuses_what_it_would_lose() -> None:
    with pytest.raises(TypeError, match="count"):
        checkpoint.flatten({"count": 3})
    with pytest.raises(ValueError, match="a/b"):
        checkpoint.flatten({"a/b": jnp.zeros(1), "a": {"b": jnp.zeros(1)}})


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({}, r"array layer/w that the checkpoint lacks"),
        (
            {"layer/w": np.zeros((2, 3), np.float32), "z": np.zeros(1)},
            r"array z that the agent lacks",
        ),
        ({"layer/w": np.zeros((3, 2), np.float32)}, r"layer/w has shape \(3, 2\).*\(2, 3\)"),
        ({"layer/w": np.zeros((2, 3), np.float64)}, r"layer/w has dtype float64.*float32"),
    ],
)
def test_restore_names_the_first_difference(arrays: dict, message: str) -> None:
    template = {"layer": {"w": jnp.zeros((2, 3))}}
    with pytest.raises(InputError, match=message):
        checkpoint.restore(template, arrays)


def test_restored_arrays_are_their_own() -> None:
    memory = np.zeros(128, np.float32)
    first = (-memory.ctypes.data % 64) // 4  # JAX shares memory that is aligned to 64 bytes
    arrays = {"w": memory[first : first + 64]}
    restored = checkpoint.restore({"w": jnp.ones(64)}, arrays)
    arrays["w"][:] = 5
    assert np.all(np.asarray(restored["w"]) == 0)


def test_no_checkpoint_is_none(tmp_path: Path) -> None:
    assert checkpoint.load(tmp_path) is None
    assert checkpoint.load(tmp_path / "absent") is None


def test_two_are_kept(tmp_path: Path) -> None:
    save(tmp_path, 5, 10, 15, 20)
    assert names(tmp_path) == ["step-000000015", "step-000000020"]


def damaged_load(directory: Path) -> tuple[checkpoint.Checkpoint | None, list[str]]:
    said: list[str] = []
    return checkpoint.load(directory, said.append), said


@pytest.mark.parametrize("file", FILES)
def test_every_flipped_bit_and_truncation_is_seen(tmp_path: Path, file: str) -> None:
    save(tmp_path, 1, 2)
    path = tmp_path / "step-000000002" / file
    good = path.read_bytes()
    rng = np.random.default_rng(0)
    cases = [(int(at), int(bit)) for at, bit in rng.integers((len(good), 8), size=(60, 2))]
    for position, bit in cases:
        flip_bit(path, position, bit)
        loaded, said = damaged_load(tmp_path)
        assert loaded is not None
        assert loaded.step == 1, f"bit {bit} of byte {position}"
        assert len(said) == 1
        assert "step-000000002" in said[0]
        path.write_bytes(good)
    for length in (0, 1, len(good) // 2, len(good) - 1):
        path.write_bytes(good[:length])
        loaded, said = damaged_load(tmp_path)
        assert loaded is not None
        assert loaded.step == 1
        assert str(path) in said[0]
    path.write_bytes(good)
    assert damaged_load(tmp_path)[1] == []


def test_by_default_the_fallback_is_a_warning(tmp_path: Path) -> None:
    save(tmp_path, 1, 2)
    (tmp_path / "step-000000002" / checkpoint.ARRAYS).write_bytes(b"")
    with pytest.warns(UserWarning, match=r"step-000000002/arrays.safetensors.*back to step 1"):
        checkpoint.load(tmp_path)


@pytest.mark.parametrize("file", FILES)
def test_missing_file_is_named(tmp_path: Path, file: str) -> None:
    save(tmp_path, 1, 2)
    (tmp_path / "step-000000002" / file).unlink()
    loaded, said = damaged_load(tmp_path)
    assert loaded is not None
    assert loaded.step == 1
    assert f"{file} is missing" in said[0]


@pytest.mark.parametrize("file", FILES)
def test_symbolic_link_is_refused(tmp_path: Path, file: str) -> None:
    save(tmp_path / "c", 1, 2)
    path = tmp_path / "c" / "step-000000002" / file
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    loaded, said = damaged_load(tmp_path / "c")
    assert loaded is not None
    assert loaded.step == 1
    assert f"{file} is not a regular file" in said[0]


def test_linked_checkpoint_and_stray_file_are_refused(tmp_path: Path) -> None:
    save(tmp_path / "c", 1, 2)
    (tmp_path / "c" / "step-000000001" / "extra.pkl").write_bytes(b"")
    (tmp_path / "c" / "step-000000002").rename(tmp_path / "elsewhere")
    (tmp_path / "c" / "step-000000002").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(InputError, match="step-000000002 is not a directory"):
        checkpoint.load(tmp_path / "c")
    (tmp_path / "c" / "step-000000002").unlink()
    with pytest.raises(InputError, match=r"extra.pkl does not belong"):
        checkpoint.load(tmp_path / "c")


def test_forged_files_with_good_checksums_are_refused(tmp_path: Path) -> None:
    save(tmp_path, 1)
    folder = tmp_path / "step-000000001"
    for file, content in [
        (checkpoint.ARRAYS, b"\xff" * 7 + b"\x7f" + b"{}"),
        (checkpoint.FACTS, b"[" * 100_000),
    ]:
        good = {name: (folder / name).read_bytes() for name in FILES}
        (folder / file).write_bytes(content)
        manifest = json.loads((folder / checkpoint.MANIFEST).read_bytes())
        manifest["files"][file] = fingerprint(folder / file)
        (folder / checkpoint.MANIFEST).write_text(json.dumps(manifest))
        with pytest.raises(InputError, match=rf"{file} cannot be read"):
            checkpoint.load(tmp_path)
        for name, data in good.items():
            (folder / name).write_bytes(data)


def test_all_damaged_is_an_error_and_deletes_nothing(tmp_path: Path) -> None:
    save(tmp_path, 1, 2)
    for folder in tmp_path.iterdir():
        flip_bit(folder / checkpoint.ARRAYS, -1, 0)
    with pytest.raises(InputError, match=r"step-000000002/arrays.safetensors"):
        checkpoint.load(tmp_path)
    assert names(tmp_path) == ["step-000000001", "step-000000002"]


def test_renamed_checkpoint_is_not_believed(tmp_path: Path) -> None:
    save(tmp_path, 1)
    (tmp_path / "step-000000001").rename(tmp_path / "step-000000009")
    with pytest.raises(InputError, match=r"MANIFEST.json does not fit"):
        checkpoint.load(tmp_path)


def test_leftovers_are_ignored_then_cleaned(tmp_path: Path) -> None:
    save(tmp_path, 1)
    shutil.copytree(tmp_path / "step-000000001", tmp_path / "step-000000002.tmp")
    (tmp_path / "step-000000003.tmp").mkdir()
    loaded, said = damaged_load(tmp_path)
    assert loaded is not None
    assert (loaded.step, said) == (1, [])
    save(tmp_path, 2)
    assert names(tmp_path) == ["step-000000001", "step-000000002"]


def test_after_a_fallback_the_damaged_future_goes(tmp_path: Path) -> None:
    save(tmp_path, 10, 20)
    flip_bit(tmp_path / "step-000000020" / checkpoint.FACTS, 0, 0)
    save(tmp_path, 15)  # the run resumed at 10
    assert names(tmp_path) == ["step-000000010", "step-000000015"]
    assert damaged_load(tmp_path)[1] == []


def test_saving_a_step_twice_keeps_the_second(tmp_path: Path) -> None:
    save(tmp_path, 1)
    checkpoint.save(tmp_path, 1, some_arrays(1), {"again": True})
    assert names(tmp_path) == ["step-000000001"]
    loaded = checkpoint.load(tmp_path)
    assert loaded is not None
    assert loaded.facts == {"again": True}


@pytest.mark.parametrize("call", ["fsync", "rename"])
def test_wherever_a_save_fails_the_last_one_remains(tmp_path: Path, monkeypatch, call) -> None:
    """Also when the same step is saved again, the one moment without a plain directory."""
    real = getattr(os, call)
    for step in (1, 2):
        failures = 0
        for allowed in range(20):
            directory = tmp_path / f"{step}-{allowed}"
            save(directory, 1)
            calls = 0

            def failing(*arguments, allowed=allowed):
                nonlocal calls
                calls += 1
                if calls > allowed:
                    raise OSError(28, "No space left on device")
                return real(*arguments)

            with monkeypatch.context() as patch:
                patch.setattr(os, call, failing)
                try:
                    checkpoint.save(directory, step, some_arrays(step), {"step": step})
                except OSError:
                    failures += 1
            loaded, said = damaged_load(directory)
            assert loaded is not None
            assert said == []
            assert loaded.step in (1, step)
            save(directory, 3)
            assert loaded_step(directory) == 3
        assert 1 <= failures < 20


def loaded_step(directory: Path) -> int:
    loaded, said = damaged_load(directory)
    assert loaded is not None
    assert said == []
    return loaded.step


def test_a_failed_save_frees_its_space(tmp_path: Path) -> None:
    save(tmp_path, 1)
    with pytest.raises(ValueError, match="not JSON compliant"):
        checkpoint.save(tmp_path, 2, some_arrays(2), {"x": float("nan")})
    assert names(tmp_path) == ["step-000000001"]


def test_files_reach_the_disk_before_the_rename_and_the_directory_after(
    tmp_path: Path, monkeypatch
) -> None:
    events: list[str] = []
    fsync, rename = os.fsync, os.rename
    save(tmp_path, 1)

    def record_fsync(descriptor: int) -> None:
        events.append(Path(os.readlink(f"/proc/self/fd/{descriptor}")).name)
        fsync(descriptor)

    def record_rename(source: Path, target: Path) -> None:
        events.append(f"{source.name} -> {target.name}")
        rename(source, target)

    monkeypatch.setattr(os, "fsync", record_fsync)
    monkeypatch.setattr(os, "rename", record_rename)
    save(tmp_path, 2)
    renamed = events.index("step-000000002.tmp -> step-000000002")
    assert set(events[:renamed]) == {*FILES, "step-000000002.tmp"}
    assert events[renamed - 1] == "step-000000002.tmp"
    assert events[renamed + 1] == tmp_path.name
