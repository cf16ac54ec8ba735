"""Policies in plain NumPy: one observation at a time, where a call of JAX would take longer than
the simulator."""

import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from phimu.action_range import one_hot
from phimu.errors import InputError
from phimu.normalisation import Acting, RunningNormaliser
from phimu.policies import LOG_STD_RANGE, Categorical, Gaussian, TanhGaussian
from phimu.types import Spec

# (observation, randomness) -> action in [-1, 1], or one-hot
SamplingPolicy = Callable[[np.ndarray, np.random.Generator], np.ndarray]


ACTIVATIONS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "relu": lambda x: np.maximum(x, 0),
    "elu": lambda x: np.where(x > 0, x, np.exp(np.minimum(x, 0)) - 1),
    "tanh": np.tanh,
}
SQUASHES = ("tanh", "clip")
OF_OTHERS = (-20.0, 2.0)  # log standard deviations in files are clipped to this, as SAC's usually


@dataclass(frozen=True)
class DensePolicy:
    """Dense layers, then a Gaussian through tanh, or a mean clipped to [-1, 1]."""

    hidden: tuple[tuple[np.ndarray, np.ndarray], ...]  # weight [inputs, outputs], bias
    mean: tuple[np.ndarray, np.ndarray]
    log_std: tuple[np.ndarray, np.ndarray] | None = None  # None acts without noise
    log_std_range: tuple[float, float] = OF_OTHERS
    smooth_range: bool = False  # whether tanh leads into the range, or a clip
    activation: str = "relu"
    layer_norm: bool = False
    squash: str = "tanh"
    shift: np.ndarray | None = None  # [observation_dim]; inputs are (s - shift) scale,
    scale: np.ndarray | None = None  # clipped to +-limit
    limit: float = np.inf
    uniform_mix: float = 0.0

    @property
    def samples(self) -> bool:
        """Whether it acts with noise of its own."""
        return self.log_std is not None

    def __call__(self, observation: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        if self.uniform_mix and rng.random() < self.uniform_mix:
            return rng.uniform(-1, 1, len(self.mean[1])).astype(np.float32)
        features = self._features(observation)
        action = features @ self.mean[0] + self.mean[1]
        if self.log_std is not None:
            noise = rng.standard_normal(len(action), np.float32)
            action += np.exp(self._log_std(features, *self.log_std)) * noise
        return self._squash(action)

    def mode(self, observation: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """The same without noise; it asks for none of `rng`."""
        return self._squash(self.outputs(observation))

    def outputs(self, observation: np.ndarray) -> np.ndarray:
        """The mean before it is squashed."""
        return self._features(observation) @ self.mean[0] + self.mean[1]

    def _features(self, x: np.ndarray) -> np.ndarray:
        if self.shift is not None:
            x = np.minimum(np.maximum((x - self.shift) * self.scale, -self.limit), self.limit)
        activation = ACTIVATIONS[self.activation]
        for weight, bias in self.hidden:
            x = x @ weight
            x += bias
            if self.layer_norm:
                x -= x.mean()
                x /= np.sqrt(np.mean(x * x) + np.float32(1e-5))
            x = activation(x)
        return x

    def _log_std(self, features: np.ndarray, weight: np.ndarray, bias: np.ndarray) -> np.ndarray:
        raw = features @ weight + bias
        low, high = self.log_std_range
        if self.smooth_range:
            return low + 0.5 * (high - low) * (np.tanh(raw) + 1)
        return np.minimum(np.maximum(raw, low), high)

    def _squash(self, action: np.ndarray) -> np.ndarray:
        if self.squash == "tanh":
            return np.tanh(action)
        return np.minimum(np.maximum(action, -1), 1)


@dataclass(frozen=True)
class DenseChoice:
    """One of n actions, as a one-hot vector, by the logits of dense layers."""

    logits: DensePolicy  # of which the outputs are asked
    uniform_mix: float = 0.0
    samples = True

    def __call__(self, observation: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        count = len(self.logits.mean[1])
        if self.uniform_mix and rng.random() < self.uniform_mix:
            return one_hot(rng.integers(count), count)
        # The largest of logits with Gumbel noise is a sample of their softmax.
        return one_hot(np.argmax(self.logits.outputs(observation) + rng.gumbel(size=count)), count)

    def mode(self, observation: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """The most likely one; it asks for nothing of `rng`."""
        logits = self.logits.outputs(observation)
        return one_hot(np.argmax(logits), len(logits))


def random_actions(spec: Spec) -> SamplingPolicy:
    return lambda observation, rng: spec.random_action(rng).astype(np.float32)


def from_acting(acting: Acting, uniform_mix: float = 0.0) -> DensePolicy | DenseChoice:
    """What a run does when it acts, from the part of its state that acting needs."""
    actor, normaliser = acting.policy, acting.normaliser
    if not isinstance(actor, TanhGaussian | Gaussian | Categorical):
        raise InputError(
            f"The policy is a {type(actor).__name__}: collect with a Gaussian or a Categorical."
        )
    network = actor.network
    layers = [(np.asarray(layer.weight), np.asarray(layer.bias)) for layer in network.layers]
    weight, bias = layers.pop()
    shift = scale = None
    if isinstance(normaliser, RunningNormaliser):
        shift = np.asarray(normaliser.mean)
        scale = 1 / np.sqrt(np.asarray(normaliser.variance) + np.float32(1e-6))
    style: dict[str, Any] = {
        "hidden": tuple(layers),
        "activation": network.activation,
        "layer_norm": network.layer_norm,
        "shift": shift,
        "scale": scale,
        "limit": 10.0,
    }
    if isinstance(actor, Categorical):
        return DenseChoice(DensePolicy(mean=(weight, bias), **style), uniform_mix)
    squashed = isinstance(actor, TanhGaussian)
    if isinstance(actor, TanhGaussian):
        half = len(bias) // 2
        mean = np.ascontiguousarray(weight[:, :half]), bias[:half]
        log_std = np.ascontiguousarray(weight[:, half:]), bias[half:]
    else:
        mean, log_std = (weight, bias), (np.zeros_like(weight), np.asarray(actor.log_std))
    return DensePolicy(
        mean=mean,
        log_std=log_std,
        log_std_range=LOG_STD_RANGE if squashed else OF_OTHERS,
        smooth_range=squashed,
        squash="tanh" if squashed else "clip",
        uniform_mix=uniform_mix,
        **style,
    )


def from_npz(path: Path, spec: Spec) -> DensePolicy:
    """A policy from a file of plain arrays.

    `hidden_0_weight` [inputs, outputs], `hidden_0_bias`, `hidden_1_weight`, ..., `mean_weight`,
    `mean_bias`, and if it is stochastic `log_std_weight`, `log_std_bias`; `activation` and
    `squash` as texts; `obs_mean` and `obs_std` where inputs are normalised.
    """
    if spec.discrete:
        raise InputError(
            f"policy is {path}, whose actions are continuous, but those of the task are discrete: "
            "give a run directory, or the word random."
        )
    arrays = _read(path)
    activation = _text(path, arrays, "activation", tuple(ACTIVATIONS))
    squash = _text(path, arrays, "squash", SQUASHES)

    def layer(name: str, inputs: int, outputs: int) -> tuple[np.ndarray, np.ndarray]:
        weight = _floats(path, arrays, f"{name}_weight", (inputs, outputs))
        return weight, _floats(path, arrays, f"{name}_bias", (outputs,))

    hidden: list[tuple[np.ndarray, np.ndarray]] = []
    width = spec.observation_dim
    while (name := f"hidden_{len(hidden)}") + "_weight" in arrays:
        hidden.append(layer(name, width, (0, *arrays[f"{name}_weight"].shape)[-1]))
        width = len(hidden[-1][1])
    mean = layer("mean", width, spec.action_dim)
    log_std = layer("log_std", width, spec.action_dim) if "log_std_weight" in arrays else None
    shift = scale = None
    if "obs_mean" in arrays:
        shift = _floats(path, arrays, "obs_mean", (spec.observation_dim,))
        std = _floats(path, arrays, "obs_std", (spec.observation_dim,))
        if not (std > 0).all():
            raise InputError(f"{path}: obs_std must be positive throughout.")
        scale = 1 / std
    if arrays:
        raise InputError(
            f"{path} also holds {', '.join(sorted(arrays))}, which no policy has: see "
            "docs/data-collection.md for the names."
        )
    return DensePolicy(
        tuple(hidden), mean, log_std, activation=activation, squash=squash, shift=shift, scale=scale
    )


def _read(path: Path) -> dict[str, np.ndarray]:
    if not path.is_file():
        raise InputError(f"policy is {path}: there is no such run directory and no such file.")
    try:
        with np.load(path, allow_pickle=False) as file:
            return {name: file[name] for name in file.files}
    except (ValueError, EOFError, AttributeError, TypeError, zipfile.BadZipFile) as error:
        raise InputError(
            f"{path} is not an .npz of plain arrays: write it with np.savez."
        ) from error


def _text(path: Path, arrays: dict[str, np.ndarray], name: str, known: tuple[str, ...]) -> str:
    found = str(arrays.pop(name, "(absent)"))[:20]
    if found not in known:
        raise InputError(f"{path}: {name} is {found}, but must be one of {', '.join(known)}.")
    return found


def _floats(
    path: Path, arrays: dict[str, np.ndarray], name: str, shape: tuple[int, ...]
) -> np.ndarray:
    if name not in arrays:
        raise InputError(f"{path} has no {name}: see docs/data-collection.md for the names.")
    array = arrays.pop(name)
    if array.shape != shape:
        raise InputError(
            f"{path}: {name} has shape {array.shape}, but the task and the layer before it ask "
            f"for {shape}."
        )
    if not np.issubdtype(array.dtype, np.floating) or not np.isfinite(array).all():
        raise InputError(f"{path}: {name} must be finite floating-point numbers.")
    return np.ascontiguousarray(array, np.float32)
