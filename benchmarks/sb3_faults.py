"""The faults of docs/faults.md on Stable-Baselines3: `python benchmarks/sb3_faults.py`.

It needs a Python that has Stable-Baselines3 (`python benchmarks/peers.py` installs one, in
`~/.cache/phimu/peers`) and imports nothing of phimu. Pendulum-v1 and small networks; a few minutes
on one core. `--json FILE` also writes the numbers. Each function says what it counts.
"""

import argparse
import base64
import hashlib
import importlib.metadata
import json
import os
import pickle
import platform
import random
import re
import resource
import shutil
import signal
import tempfile
import time
import warnings
import zipfile
from collections import Counter, deque
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import cloudpickle
import gymnasium
import numpy as np
import torch
from stable_baselines3 import SAC, TD3
from stable_baselines3.common.vec_env import DummyVecEnv, VecCheckNan

TASK = "Pendulum-v1"  # episodes of 200 steps
PACKAGES = ("stable-baselines3", "torch", "gymnasium", "numpy")
Row = dict[str, Any]  # fault, tried, found: how often what was found


def make(algorithm: Any = SAC, env: Any = TASK, width: int = 32, **settings: Any) -> Any:
    sizes = {"net_arch": [width, width]}
    usual = {"learning_starts": 100, "batch_size": 32, "buffer_size": 2_000, "seed": 0}
    return algorithm("MlpPolicy", env, policy_kwargs=sizes, device="cpu", **(usual | settings))


def weights(model: Any) -> np.ndarray:
    """All weights in a row: actor, critics and their targets."""
    return np.concatenate([value.numpy().ravel() for value in model.policy.state_dict().values()])


# Stopped and resumed


def stopped_and_resumed() -> list[Row]:
    """Share of weights that differ in a bit from those of a run of 1,200 steps without a stop.

    The stop is at the end of an episode (600) or within one (650). The way to continue is that of
    the manual: save, save_replay_buffer, load with the environment, load_replay_buffer, learn with
    reset_num_timesteps=False. The seed is part of the file, and `load` sets it again. "By hand"
    keeps what these leave out as well: the states of all generators, and the environment.
    """
    total = 1_200
    whole = weights(make().learn(total))
    cases = {
        "not stopped, run again": lambda: make().learn(total),
        "two calls of learn, nothing saved": lambda: (
            make().learn(600).learn(total - 600, reset_num_timesteps=False)
        ),
        "saved and resumed at the end of an episode": lambda: resumed(600, total),
        "saved and resumed within an episode": lambda: resumed(650, total),
        "the same, generators and environment kept by hand": lambda: resumed(650, total, True),
    }
    return [
        row(f"{name}: weights that differ", whole.size, {"differ": count(whole, weights(again()))})
        for name, again in cases.items()
    ]


def count(one: np.ndarray, other: np.ndarray) -> int:
    return int((one.view(np.uint32) != other.view(np.uint32)).sum())


def resumed(stop: int, total: int, by_hand: bool = False) -> Any:
    with tempfile.TemporaryDirectory() as directory:
        file, buffer = Path(directory) / "model.zip", Path(directory) / "buffer.pkl"
        model = make().learn(stop)
        model.save(file)
        model.save_replay_buffer(buffer)
        states = random.getstate(), np.random.get_state(), torch.get_rng_state()  # noqa: NPY002
        space = model.action_space.np_random.bit_generator.state
        env = model.get_env() if by_hand else gymnasium.make(TASK)
        model = SAC.load(file, env=env, device="cpu", force_reset=not by_hand)
        model.load_replay_buffer(buffer)
        if by_hand:
            random.setstate(states[0])
            np.random.set_state(states[1])  # noqa: NPY002, the replay buffer draws from it
            torch.set_rng_state(states[2])
            model.action_space.np_random.bit_generator.state = space
        return model.learn(total - stop, reset_num_timesteps=False)


# What is in files


class Files:
    """A model that has learned, 0.8 MB, and its full replay buffer, 0.2 MB."""

    def __init__(self, directory: Path):
        self.directory = directory
        self.model = make(width=128, buffer_size=5_000, gradient_steps=0).learn(5_001)
        self.model.train(20)  # so that the optimisers have something to save
        self.zip, self.pickle = directory / "model.zip", directory / "buffer.pkl"
        self.write(0)
        self.good = self.zip.read_bytes(), self.pickle.read_bytes()

    def restore(self) -> None:
        self.zip.write_bytes(self.good[0])
        self.pickle.write_bytes(self.good[1])

    def write(self, number: int, into: tuple[Path, Path] | None = None) -> None:
        """Both files, with `number` in each and in every weight if it is not 0."""
        self.model.num_timesteps = number
        if number:
            self.model.replay_buffer.rewards[:] = number
            with torch.no_grad():
                for value in self.model.policy.parameters():
                    value.fill_(number)
        file, buffer = into or (self.zip, self.pickle)
        self.model.save(file)
        self.model.save_replay_buffer(buffer)

    def read(self, file: Path, buffer: Path) -> list[float]:
        """The numbers that `write` put in: of the model, its least and greatest weight, buffer."""
        model = SAC.load(file, device="cpu")
        model.load_replay_buffer(buffer)
        found = weights(model)
        rewards = model.replay_buffer.rewards
        numbers = model.num_timesteps, found.min(), found.max(), rewards.min(), rewards.max()
        return [float(number) for number in numbers]


def content(file: Path, buffer: Path | None) -> str:
    """A digest of all that is loaded: tensors of networks and optimisers, settings; the buffer."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # a warning counts as having been seen
        model = SAC.load(file, device="cpu")
        if buffer is None:
            return digest(vars(model) | model.get_parameters())
        model.load_replay_buffer(buffer)
        return digest(vars(model.replay_buffer))


def digest(value: Any) -> str:
    if isinstance(value, dict):
        text = repr([(key, digest(each)) for key, each in value.items()])
    elif isinstance(value, list | tuple | deque):
        text = repr([digest(each) for each in value])
    elif isinstance(value, torch.Tensor | np.ndarray):
        array = value.detach().numpy() if isinstance(value, torch.Tensor) else value
        text = f"{array.dtype} {array.shape} {hashlib.sha256(array.tobytes()).hexdigest()}"
    else:
        text = re.sub("0x[0-9a-f]+", "", repr(value))  # without addresses
    return hashlib.sha256(f"{type(value)} {text}".encode()).hexdigest()


def apart(work: Callable[[], Any]) -> Row:
    """What `work` returns in a forked process, or its error; damage may crash it or hang it."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        try:
            signal.alarm(60)
            resource.setrlimit(resource.RLIMIT_AS, (16 << 30, 16 << 30))
            answer = {"value": work()}
        except BaseException as error:
            answer = {"error": type(error).__name__}
        with open(writer, "w") as pipe:
            json.dump(answer, pipe)
        os._exit(0)
    os.close(writer)
    with open(reader) as pipe:
        said = pipe.read()
    os.waitpid(child, 0)
    return json.loads(said) if said else {"error": "crash or hang"}


# Damage


def damaged(files: Files, how: str, times: int) -> list[Row]:
    """One bit flipped, or the end cut off, at a random place of one file.

    "Error": loading raised, warned or crashed. "Loaded, different": no sign of damage, but a tensor
    of the networks or optimisers, a setting, or anything in the buffer is not what was saved.
    """
    rows = []
    rng = random.Random(0)
    for kind, path in (("model zip", files.zip), ("replay pickle", files.pickle)):
        found: Counter[str] = Counter()
        files.restore()
        buffer = files.pickle if path == files.pickle else None
        expected = content(files.zip, buffer)
        if apart(partial(content, files.zip, buffer)) != {"value": expected}:
            raise SystemExit("Two loads of one good file differ: nothing can be said of damage.")
        good = path.read_bytes()
        for _ in range(times):
            at = rng.randrange(len(good))
            bad = bytearray(good[:at] if how == "cut" else good)
            if how == "flip":
                bad[at] ^= 1 << rng.randrange(8)
            path.write_bytes(bad)
            answer = apart(partial(content, files.zip, buffer))
            if "error" in answer:
                found["error"] += 1
            else:
                equal = answer["value"] == expected
                found["loaded, equal" if equal else "loaded, different"] += 1
        what = "a flipped bit in the" if how == "flip" else "truncated"
        rows.append(row(f"{what} {kind}", times, found))
    files.restore()
    return rows


# Kills and two writers


def killed_while_saving(files: Files, times: int) -> list[Row]:
    """SIGKILL at a random instant of 0.15 s in which a process saves both files back to back.

    To one path each: what is there does not load, or model and buffer are of two saves. With the
    step in the name, as CheckpointCallback does it: the same of the newest model and its buffer,
    and of the pair before. The process does nothing but save, so nearly all kills fall into one.
    """
    rng = random.Random(0)
    same: Counter[str] = Counter()
    named: Counter[str] = Counter()
    for number in range(times):
        files.restore()
        kill(rng, lambda: save_for_ever(files, lambda _: (files.zip, files.pickle)))
        same[pair(files, files.zip, files.pickle)] += 1
        named.update(killed_with_names(files, files.directory / str(number), rng))
    return [
        row("SIGKILL while saving, to one path", times, same),
        row("SIGKILL while saving, the step in the name", times, named),
    ]


def killed_with_names(files: Files, folder: Path, rng: random.Random) -> list[str]:
    def names(number: int) -> tuple[Path, Path]:
        return folder / f"model-{number:04d}.zip", folder / f"buffer-{number:04d}.pkl"

    folder.mkdir()
    files.restore()
    for old in (1, 2):
        for source, target in zip((files.zip, files.pickle), names(old), strict=True):
            shutil.copy(source, target)
    kill(rng, lambda: save_for_ever(files, names))
    newest = len(list(folder.glob("model-*")))
    found = [pair(files, *names(number)) for number in (newest, newest - 1)]
    shutil.rmtree(folder)
    return [f"newest: {found[0]}", f"the one before: {found[1]}"]


def save_for_ever(files: Files, names: Callable[[int], tuple[Path, Path]]) -> None:
    number = 2
    while True:
        number += 1
        files.write(number, names(number))


def kill(rng: random.Random, work: Callable[[], None]) -> None:
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writer, b"!")
        work()
    os.read(reader, 1)  # on a busy machine it may take a while to begin
    os.close(reader)
    os.close(writer)
    time.sleep(rng.uniform(0.0, 0.15))
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)


def pair(files: Files, file: Path, buffer: Path) -> str:
    answer = apart(lambda: files.read(file, buffer))
    if "error" in answer:
        return "does not load"
    numbers = answer["value"]
    return "of two saves" if numbers[0] and len(set(numbers)) > 1 else "good"


def two_writers(files: Files, times: int) -> list[Row]:
    """Two processes save to one path at the same time, three times each."""
    found: Counter[str] = Counter()
    for _ in range(times):
        children = []
        for number in (1, 2):
            child = os.fork()
            if child == 0:
                try:
                    for _ in range(3):
                        files.write(number)
                    os._exit(0)
                except BaseException:
                    os._exit(1)
            children.append(child)
        codes = [os.waitpid(child, 0)[1] for child in children]
        found["one was refused" if any(codes) else "none was refused"] += 1
        found[f"afterwards: {pair(files, files.zip, files.pickle)}"] += 1
    files.restore()
    return [row("two processes save to one path", times, found)]


# Numbers that are not finite


class OneNan(gymnasium.Wrapper):
    """One reward, that of step 300, is NaN."""

    steps = 0

    def step(self, action: Any) -> Any:
        observation, reward, *rest = self.env.step(action)
        self.steps += 1
        return observation, np.nan if self.steps == 300 else reward, *rest


def not_finite() -> list[Row]:
    """A NaN reward at step 300 of 1,000: at which step is there an error, and what is NaN then.

    "Saved": `save` writes those weights, and `load` reads them, without an error. VecCheckNan is
    the wrapper that the manual offers; it is not there unless one puts it there.
    """
    rows = []
    for algorithm in (SAC, TD3):
        for wrapped in (False, True):
            env: Any = DummyVecEnv([lambda: OneNan(gymnasium.make(TASK))])
            env = VecCheckNan(env, raise_exception=True) if wrapped else env
            model = make(algorithm, env)
            found: Counter[str] = Counter()
            try:
                model.learn(1_000)
            except ValueError:
                found["error at step"] = model.num_timesteps + 1
            after = weights(model)
            found["weights"], found["NaN weights"] = after.size, int(np.isnan(after).sum())
            with tempfile.TemporaryDirectory() as directory:
                model.save(Path(directory) / "model.zip")
                again = weights(algorithm.load(Path(directory) / "model.zip", device="cpu"))
            found["NaN weights saved"] = int(np.isnan(again).sum())
            name = f"{algorithm.__name__}{' in VecCheckNan' if wrapped else ''}"
            rows.append(row(f"a NaN reward, {name}", 1, found))
    return rows


# Hostile files


class Evil:
    """Unpickled, it leaves a trace."""

    def __init__(self, trace: Path):
        self.trace = trace

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.trace,)


def hostile(files: Files) -> list[Row]:
    """A file whose content creates another one: is it created when the file is loaded."""
    trace = files.directory / "trace"
    evil = Evil(trace)

    def in_pickle() -> None:
        files.pickle.write_bytes(pickle.dumps(evil))

    def in_settings() -> None:
        packed = base64.b64encode(cloudpickle.dumps(evil)).decode()
        rewrite("data", lambda old: json.dumps(json.loads(old) | {"x": {":serialized:": packed}}))

    def in_weights() -> None:
        torch.save(evil, files.directory / "evil.pth")
        rewrite("policy.pth", lambda old: (files.directory / "evil.pth").read_bytes())

    def rewrite(name: str, change: Callable[[bytes], str | bytes]) -> None:
        with zipfile.ZipFile(files.zip) as archive:
            members = {each: archive.read(each) for each in archive.namelist()}
        with zipfile.ZipFile(files.zip, "w") as archive:
            for each, old in members.items():
                archive.writestr(each, change(old) if each == name else old)

    rows = []
    places = {
        "in the replay pickle": in_pickle,
        "in the model zip, settings": in_settings,
        "in the model zip, weights": in_weights,
    }
    for place, forge in places.items():
        files.restore()
        forge()
        answer = apart(lambda: files.read(files.zip, files.pickle))
        found = {"executed": int(trace.exists()), "error": int("error" in answer)}
        rows.append(row(f"code {place}", 1, found))
        trace.unlink(missing_ok=True)
    files.restore()
    return rows


def row(fault: str, tried: int, found: dict[str, int]) -> Row:
    said = ", ".join(f"{name} {number:,}" for name, number in sorted(found.items()))
    print(f"{fault:<78} {tried:>6,}  {said}", flush=True)
    return {"fault": fault, "tried": tried, "found": dict(sorted(found.items()))}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, help="also write the numbers into this file")
    parser.add_argument("--times", type=int, default=200, help="kills, flips and truncations")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    versions = {name: importlib.metadata.version(name) for name in PACKAGES}
    versions["python"] = platform.python_version()
    print(", ".join(f"{name} {version}" for name, version in versions.items()))
    print(f"{'fault':<78} {'tried':>6}  found")
    rows = stopped_and_resumed()
    with tempfile.TemporaryDirectory() as directory:
        files = Files(Path(directory))
        rows += killed_while_saving(files, arguments.times)
        rows += damaged(files, "flip", arguments.times)
        rows += damaged(files, "cut", arguments.times)
        rows += not_finite()
        rows += two_writers(files, arguments.times)
        rows += hostile(files)
    if arguments.json:
        command = "python benchmarks/sb3_faults.py"
        found = {"command": command, "versions": versions, "rows": rows}
        arguments.json.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
