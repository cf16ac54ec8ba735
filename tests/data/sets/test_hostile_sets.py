"""Sets that must be refused: one sentence with the file and the field, and nothing else is read."""

import hashlib
import io
import os
import re
import sys
import zipfile
import zlib

import numpy as np
import pytest

from phimu.data.sets import checksums
from phimu.data.sets.opening import open_set
from phimu.data.sets.scores import Published
from phimu.errors import InputError

h5py = pytest.importorskip("h5py")


def refused(source, *parts, **options) -> str:
    """The sentence, which has these parts in it."""
    with pytest.raises(InputError) as caught:
        open_set(source, **options)
    sentence = str(caught.value)
    for part in parts:
        assert part in sentence
    return sentence


@pytest.mark.parametrize("name", ["logged.hdf5", "logged.npz"])
def test_fifty_truncations(rows, write, tmp_path, name):
    content = write(rows(), name).read_bytes()
    path = tmp_path / f"cut{name}"
    for length in np.linspace(0, len(content) - 1, 50).astype(int):
        path.write_bytes(content[:length])
        refused(path, str(path))


@pytest.mark.parametrize("how", ["sidecar", "sha256"])
@pytest.mark.parametrize("name", ["logged.hdf5", "logged.npz"])
def test_two_hundred_bit_flips(rows, write, name, how):
    path = write(rows(), name)
    content = path.read_bytes()
    digest = hashlib.sha256(content).hexdigest()
    if how == "sidecar":
        checksums.sidecar(path).write_text(f"{digest}  {path.name}\n")
    options = {"sha256": digest} if how == "sha256" else {}
    assert open_set(path, **options).sha256 == digest
    rng = np.random.default_rng(0)
    for bit in rng.choice(8 * len(content), 200, replace=False):
        flipped = bytearray(content)
        flipped[bit // 8] ^= 1 << bit % 8
        path.write_bytes(flipped)
        refused(path, str(path), "is damaged or another file", digest, **options)


@pytest.mark.parametrize("name", ["logged.hdf5", "packed.hdf5", "logged.npz", "packed.npz"])
def test_bit_flips_without_a_checksum_never_crash(rows, write, name):
    """Some cannot be noticed; none is anything but a set or one sentence."""
    path = write(rows(), name, **{"compression": "gzip"} if name == "packed.hdf5" else {})
    if name == "packed.npz":
        np.savez_compressed(path, **rows())
    content = path.read_bytes()
    rng = np.random.default_rng(1)
    for bit in rng.choice(8 * len(content), 200, replace=False):
        flipped = bytearray(content)
        flipped[bit // 8] ^= 1 << bit % 8
        path.write_bytes(flipped)
        try:
            assert 0 < len(open_set(path)) <= 12
        except InputError as error:
            assert str(path) in str(error)  # noqa: PT017


def test_sidecars(rows, write):
    path = write(rows())
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    beside = checksums.sidecar(path)
    for text in (
        digest,
        f"{digest.upper()} *elsewhere/{path.name}",
        f"{'0' * 64}  a\n{digest}  {path.name}\n",
    ):
        beside.write_text(text)
        assert open_set(path).sha256 == digest
    for text in ("", "not a checksum", f"{digest}  other.hdf5"):
        beside.write_text(text)
        refused(path, str(beside), "has no sha256 of logged.hdf5")
    refused(path, "sha256 is 'abc': give its 64 hexadecimal digits", sha256="abc")


def test_a_damaged_file_of_d4rl(rows, write, monkeypatch):
    path = write(rows((5, 5), (True, False), 11, 3), "hopper_mixed.hdf5")
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    size = path.stat().st_size
    other = Published(size, "0" * 64)
    monkeypatch.setitem(checksums.V0_FILES, path.name, other)
    refused(path, str(path), "D4RL's file of this name and size has")
    monkeypatch.setitem(checksums.V0_FILES, path.name, other._replace(sha256=digest))
    assert len(open_set(path)) == 10
    monkeypatch.setitem(checksums.V0_FILES, path.name, other._replace(bytes=size + 1))
    assert len(open_set(path)) == 10  # regenerated under the same name


def spoil(columns, name, row, value):
    changed = columns[name].astype(np.float64)
    changed[row] = value
    return {name: changed}


SPOILT = {
    "NaN": (lambda c: spoil(c, "observations", (7, 2), np.nan), "observations", "in row 7 is nan"),
    "NaN in s'": (lambda c: spoil(c, "next_observations", 3, np.nan), "next_observations", "row 3"),
    "infinity": (lambda c: spoil(c, "rewards", 11, np.inf), "rewards", "in row 11 is inf"),
    "too large": (lambda c: spoil(c, "rewards", 2, 1e200), "rewards", "in row 2 is inf"),
    "action": (lambda c: spoil(c, "actions", (5, 1), -1.2), "actions", "row 5, column 1, is -1.2"),
    "flag": (lambda c: spoil(c, "terminals", 4, 0.5), "terminals", "in row 4 is 0.5: give 0 or 1"),
    "NaN flag": (lambda c: spoil(c, "timeouts", 4, np.nan), "timeouts", "in row 4 is nan"),
    "short": (lambda c: {"rewards": c["rewards"][:-1]}, "rewards", "has 11 rows"),
    "long": (lambda c: {"actions": np.zeros((13, 2))}, "actions", "has 13 rows"),
    "wide reward": (lambda c: {"rewards": c["actions"]}, "rewards", "has shape (12, 2): give [N]"),
    "flat": (lambda c: {"observations": c["rewards"]}, "observations", "has shape (12,)"),
    "narrow s'": (lambda c: {"next_observations": c["actions"]}, "next_observations", "2 columns"),
    "scalar": (lambda c: {"observations": np.float32(1)}, "observations", "has shape ()"),
    "strings": (lambda c: {"actions": np.full((12, 2), b"x")}, "actions", "has type |S1"),
    "complex": (lambda c: {"rewards": c["rewards"] * 1j}, "rewards", "has type complex"),
    "no rewards": (lambda c: {"rewards": None}, "reward", "is missing"),
    "no flags": (lambda c: {"terminals": None}, "termina", "is missing"),
    "empty": (lambda c: {k: v[:0] for k, v in c.items()}, "observations", "is empty"),
    "no width": (lambda c: {"actions": np.zeros((12, 0))}, "actions", "is empty"),
    "s for s'": (
        lambda c: {"observations": c["next_observations"], "next_observations": c["observations"]},
        "next_observations",
        "in row 0 is not observations in row 1",
    ),
    "a cut without a flag": (
        lambda c: {"timeouts": np.zeros(12, bool)},
        "next_observations",
        "in row 6 is not observations in row 7",
    ),
    "r for the flags": (
        lambda c: {"rewards": c["terminals"].astype(float), "terminals": c["rewards"]},
        "terminals",
        "give 0 or 1",
    ),
}  # fmt: skip


@pytest.mark.parametrize("suffix", ["hdf5", "npz"])
@pytest.mark.parametrize("case", SPOILT)
def test_spoilt_columns(rows, write, case, suffix):
    change, field, complaint = SPOILT[case]
    columns = rows()
    path = write(columns | change(columns), f"logged.{suffix}")
    sentence = refused(path, f"{path}: {field}", complaint)
    assert "\n" not in sentence


def test_observations_for_actions(rows, write):
    columns = rows((5, 5), (True, False), 11, 3) | {"next_observations": None}
    columns["observations"], columns["actions"] = columns["actions"], columns["observations"] / 1e3
    refused(write(columns, "hopper_medium.hdf5"), "hopper_medium.hdf5: observations has 3 columns")


def test_flags_of_another_length(rows, write):
    columns = rows((5, 5), (True, False), 17, 6)
    columns["timeouts"] = columns["timeouts"][:-1]
    path = write(columns, "halfcheetah_medium.hdf5")
    refused(path, f"{path}: timeouts has 9 rows, but observations has 10")


def test_episode_numbers(rows, write):
    columns = rows() | {"timeouts": None}
    number = np.repeat([0, 1, 0], (4, 3, 5))
    path = write(columns | {"episode": number}, "logged.npz")
    refused(path, f"{path}: episode in row 7 comes back")
    path = write(columns | {"episode": np.repeat([0, 1], (7, 5))}, "logged.npz")
    refused(path, f"{path}: episode goes on after row 3")


def test_nothing_outside_is_read(rows, write, tmp_path):
    """Links, virtual datasets and external storage would each show another file's numbers."""
    columns = rows()
    other = write(columns, "other.hdf5")
    raw = tmp_path / "raw"
    raw.write_bytes(np.zeros(12, np.float32).tobytes())
    virtual = h5py.VirtualLayout((12,), np.float32)
    virtual[:] = h5py.VirtualSource(str(other), "rewards", (12,))

    def external_link(file):
        file["rewards"] = h5py.ExternalLink(str(other), "rewards")

    def soft_link(file):
        file["outside"] = h5py.ExternalLink(str(other), "/")
        file["rewards"] = h5py.SoftLink("/outside/rewards")

    def virtual_dataset(file):
        file.create_virtual_dataset("rewards", virtual)

    def external_storage(file):
        file.create_dataset("rewards", (12,), np.float32, external=[(str(raw), 0, 48)])

    for trick in (external_link, soft_link, virtual_dataset, external_storage):
        path = write(columns | {"rewards": None}, f"{trick.__name__}.hdf5")
        with h5py.File(path, "a") as file:
            trick(file)
        refused(path, f"{path}: rewards", "other" if "external_s" in path.name else "")
    assert re.search("link to another place", refused(tmp_path / "soft_link.hdf5"))


def test_shapes_that_the_file_cannot_hold(rows, write):
    columns = rows()
    huge = (1 << 40, 3)
    bombs = {
        "never written": {"shape": huge, "dtype": "f4"},
        "chunks never written": {"shape": huge, "dtype": "f4", "chunks": (1024, 3)},
        "compressed": {"shape": huge, "dtype": "f4", "chunks": (1024, 3), "compression": "gzip"},
        "one chunk": {
            "shape": (12, 3),
            "maxshape": (None, 3),
            "dtype": "f4",
            "chunks": (1 << 25, 3),
            "compression": "gzip",
        },
    }
    for shape in bombs.values():
        path = write(columns | {"observations": None})
        with h5py.File(path, "a") as file:
            file.create_dataset("observations", **shape)
        refused(path, f"{path}: observations declares", "not in the file")


def test_a_gzip_bomb(rows, write):
    """Every chunk is there, and unpacks to a thousand times itself."""
    path = write({"terminals": np.zeros(12, bool)})
    with h5py.File(path, "a") as file:
        data = file.create_dataset(
            "observations",
            (1 << 26, 3),
            "f4",
            chunks=(1 << 20, 3),
            compression="gzip",
            shuffle=True,
        )
        packed = zlib.compress(bytes(12 << 20), 9)
        for start in range(0, 1 << 26, 1 << 20):
            data.id.write_direct_chunk((start, 0), packed)
    assert path.stat().st_size < 2_000_000
    refused(path, f"{path}: observations declares 805,306,368 bytes")


def test_npz_bombs(rows, write, tmp_path):
    path = write(rows(), "logged.npz")
    bomb = tmp_path / "bomb.npz"
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        header, {"descr": "<f4", "fortran_order": False, "shape": (1 << 40, 3)}
    )
    with zipfile.ZipFile(path) as source, zipfile.ZipFile(bomb, "w") as target:
        for name in source.namelist():
            wanted = name == "observations.npy"
            target.writestr(name, header.getvalue() if wanted else source.read(name))
    refused(bomb, f"{bomb}: observations declares", "not in the file")
    trace = tmp_path / "trace"

    class Evil:
        def __reduce__(self):
            return os.mkdir, (str(trace),)

    np.savez(bomb, **rows() | {"actions": np.array([Evil()] * 12, object)})
    refused(bomb, f"{bomb}: actions has type object")
    assert not trace.exists()


def test_what_is_no_set_at_all(rows, write, tmp_path, monkeypatch):
    path = write(rows())
    refused(tmp_path / "absent.hdf5", "There is no file", "absent.hdf5")
    refused(tmp_path / "logged.csv", "is no dataset: give an .hdf5")
    refused("minari:", "names nothing")
    text = tmp_path / "text.hdf5"
    text.write_text("hello")
    refused(text, f"{text} is no HDF5 file")
    array = tmp_path / "array.npz"
    with open(array, "wb") as file:
        np.save(file, np.zeros(3))
    refused(array, f"{array} is no .npz file")
    refused(f"d4rl:{tmp_path}", "There is no file")
    os.mkfifo(tmp_path / "pipe.hdf5")
    refused(tmp_path / "pipe.hdf5", "There is no file")
    done = write(rows() | {"terminals": None, "dones": np.zeros(12)}, "done.npz")
    refused(done, "dones does not say")
    both = write(rows() | {"observation": np.zeros((12, 3))}, "both.npz")
    refused(both, "has both observation and observations")
    monkeypatch.setitem(sys.modules, "h5py", None)
    refused(path, "pip install 'phimu[offline]'")
