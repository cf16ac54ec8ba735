"""A policy that needs no phimu: its mode action as an ONNX model, or as plain arrays in an .npz.

Both are the same few steps, from an observation to an action as the environment or data has them;
docs/export.md has a reader of the arrays in NumPy.
"""

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from phimu.action_range import Actions, Choices
from phimu.agents.cpc import OnEmbedding
from phimu.errors import InputError
from phimu.networks import MLP
from phimu.normalisation import CLIP, Acting, RunningNormaliser, inverse_deviation
from phimu.policies import Categorical, Deterministic, Gaussian, TanhGaussian
from phimu.runs.files import write_atomically

OPSET, IR_VERSION = 17, 8  # of ONNX: the first with LayerNormalization, which old runtimes read
EPSILON = 1e-5  # of `networks.standardise`


class Step(NamedTuple):
    """One function of a row of numbers."""

    kind: str
    arrays: dict[str, np.ndarray] = {}  # noqa: RUF012 (nothing changes it)


class Exported(NamedTuple):
    """A policy as steps, and what it is."""

    steps: list[Step]
    observation_shape: tuple[int, ...]
    action_shape: tuple[int, ...]
    about: dict[str, Any]


def write(path: Path, policy: Exported) -> None:
    """The suffix says as what."""
    forms = {".onnx": onnx_bytes, ".npz": npz_bytes}
    if path.suffix not in forms:
        raise InputError(f"{path} is no name for an exported policy: give it .onnx or .npz.")
    write_atomically(path, forms[path.suffix](policy))


def steps_of(acting: Acting, actions: Actions) -> list[Step]:
    """From observations [B, observation_dim] to actions [B, action_dim] in their own range.

    Of discrete ones the last step is `choose`, from logits [B, n] to integers [B].
    """
    steps, seen = [], acting.normaliser
    if isinstance(seen, RunningNormaliser):
        scale = inverse_deviation(seen.variance)
        steps.append(_step("normalise", mean=seen.mean, scale=scale, bound=CLIP))
    steps += _policy(acting.policy)
    if isinstance(actions, Choices):
        return [*steps, Step("choose", {"start": np.array(actions.start, np.int64)})]
    middle, half_width = actions.low / 2 + actions.high / 2, actions.high / 2 - actions.low / 2
    ends = {"low": actions.low, "high": actions.high}
    return [*steps, _step("scale", middle=middle, half_width=half_width, **ends)]


def _policy(policy: Any) -> list[Step]:
    if isinstance(policy, OnEmbedding):
        return [*_network(policy.network), *_policy(policy.actor)]
    if isinstance(policy, Gaussian):  # the range of actions clips its mean
        return _network(policy.network)
    if isinstance(policy, Deterministic):
        return [*_network(policy.network), _step("tanh")]
    if isinstance(policy, TanhGaussian):  # of whose outputs the first half is the mean
        outputs = policy.network.layers[-1].bias.shape[0] // 2
        return [*_network(policy.network, outputs), _step("tanh")]
    if isinstance(policy, Categorical):
        return _network(policy.network)
    raise InputError(f"A policy of the kind {type(policy).__name__} cannot be exported.")


def _network(network: MLP, outputs: int | None = None) -> list[Step]:
    steps = []
    for layer in network.layers[:-1]:
        steps.append(_step("dense", weight=layer.weight, bias=layer.bias))
        steps += [_step("layer_norm")] if network.layer_norm else []
        steps.append(_step(network.activation))
    last = network.layers[-1]
    return [*steps, _step("dense", weight=last.weight[:, :outputs], bias=last.bias[:outputs])]


def _step(kind: str, **arrays: Any) -> Step:
    return Step(kind, {name: np.array(array, np.float32) for name, array in arrays.items()})


def npz_bytes(policy: Exported) -> bytes:
    """Arrays named `<number of the step>.<name>`; the rest is JSON in `about`."""
    about = policy.about | {
        "steps": [step.kind for step in policy.steps],
        "observation_shape": policy.observation_shape,
        "action_shape": policy.action_shape,
    }
    arrays = {
        f"{number}.{name}": array
        for number, step in enumerate(policy.steps)
        for name, array in step.arrays.items()
    }
    file = io.BytesIO()
    np.savez(file, about=np.array(json.dumps(about)), **arrays)  # type: ignore[arg-type]
    return file.getvalue()


def onnx_bytes(policy: Exported) -> bytes:
    """A graph from `observation` [batch, ...] to `action` [batch, ...], both float32.

    Where actions are discrete, `action` is int64 and there is a second output, `logits` [batch, n].
    """
    try:
        from onnx import TensorProto, checker, helper
    except ImportError:
        raise InputError("ONNX files need the package onnx: pip install 'phimu[onnx]'.") from None
    graph = _Graph(helper)
    value = graph.add("Reshape", "observation", graph.shape((-1, _size(policy.observation_shape))))
    for step in policy.steps:
        value = _NODES[step.kind](graph, value, **step.arrays)
    graph.add("Reshape", value, graph.shape((-1, *policy.action_shape)), output="action")
    discrete = policy.steps[-1].kind == "choose"
    ends = [
        helper.make_tensor_value_info(name, kind, ["batch", *shape])
        for name, kind, shape in (
            ("observation", TensorProto.FLOAT, policy.observation_shape),
            ("action", TensorProto.INT64 if discrete else TensorProto.FLOAT, policy.action_shape),
            *([("logits", TensorProto.FLOAT, (graph.width,))] if discrete else []),
        )
    ]
    made = helper.make_graph(graph.nodes, "policy", ends[:1], ends[1:], graph.constants)
    opsets = [helper.make_opsetid("", OPSET)]
    model = helper.make_model(
        made, producer_name="phimu", opset_imports=opsets, ir_version=IR_VERSION
    )
    helper.set_model_props(model, {name: str(value) for name, value in policy.about.items()})
    checker.check_model(model)
    return model.SerializeToString()


def _size(shape: tuple[int, ...]) -> int:
    return int(np.prod(shape))


class _Graph:
    """Nodes and constants under names of their own."""

    def __init__(self, helper: Any) -> None:
        self._helper = helper
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        self.width = 0  # of the last value that a layer gave

    def add(self, operator: str, *inputs: str, output: str | None = None, **options: Any) -> str:
        name = output or f"value_{len(self.nodes)}"
        self.nodes.append(self._helper.make_node(operator, list(inputs), [name], **options))
        return name

    def constant(self, array: np.ndarray) -> str:
        name = f"constant_{len(self.constants)}"
        kind = self._helper.np_dtype_to_tensor_dtype(array.dtype)
        tensor = self._helper.make_tensor(name, kind, array.shape, array.tobytes(), raw=True)
        self.constants.append(tensor)
        return name

    def shape(self, sizes: tuple[int, ...]) -> str:
        return self.constant(np.array(sizes, np.int64))


def _normalise(graph: _Graph, x: str, mean: Any, scale: Any, bound: Any) -> str:
    centred = graph.add("Sub", x, graph.constant(mean))
    scaled = graph.add("Mul", centred, graph.constant(scale))
    return graph.add("Clip", scaled, graph.constant(-bound), graph.constant(bound))


def _dense(graph: _Graph, x: str, weight: Any, bias: Any) -> str:
    graph.width = len(bias)
    return graph.add("Gemm", x, graph.constant(weight), graph.constant(bias))


def _layer_norm(graph: _Graph, x: str) -> str:
    ones = graph.constant(np.ones(graph.width, np.float32))
    return graph.add("LayerNormalization", x, ones, axis=-1, epsilon=EPSILON)


def _swish(graph: _Graph, x: str) -> str:
    return graph.add("Mul", x, graph.add("Sigmoid", x))


def _scale(graph: _Graph, x: str, middle: Any, half_width: Any, low: Any, high: Any) -> str:
    wide = graph.add("Mul", x, graph.constant(half_width))
    moved = graph.add("Add", wide, graph.constant(middle))
    raised = graph.add("Max", moved, graph.constant(low))
    return graph.add("Min", raised, graph.constant(high))


def _choose(graph: _Graph, x: str, start: Any) -> str:
    logits = graph.add("Identity", x, output="logits")
    return graph.add("Add", graph.add("ArgMax", logits, axis=-1, keepdims=0), graph.constant(start))


_NODES: dict[str, Callable[..., str]] = {
    "normalise": _normalise,
    "dense": _dense,
    "layer_norm": _layer_norm,
    "elu": lambda graph, x: graph.add("Elu", x),
    "relu": lambda graph, x: graph.add("Relu", x),
    "swish": _swish,
    "tanh": lambda graph, x: graph.add("Tanh", x),
    "scale": _scale,
    "choose": _choose,
}
