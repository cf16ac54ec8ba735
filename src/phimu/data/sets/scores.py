"""D4RL's reference returns, and the nine files of the paper's table."""

import re
from typing import NamedTuple


class Body(NamedTuple):
    """A MuJoCo body of D4RL. Its v0 to v2 datasets have the same reference returns."""

    # The datasets were made in Gym's -v2 classes. Gymnasium's -v4 pay the same reward; -v5 pay
    # another for the last step of a fall, and Walker2d-v5 has another friction.
    task: str
    observation_dim: int
    action_dim: int
    random_return: float
    expert_return: float
    terminates: bool = True


BODIES = {
    "halfcheetah": Body("HalfCheetah-v4", 17, 6, -280.178953, 12135.0, terminates=False),
    "hopper": Body("Hopper-v4", 11, 3, -20.272305, 3234.3),
    "walker2d": Body("Walker2d-v4", 17, 6, 1.629008, 4592.3),
}
HORIZON = 1_000  # steps of an episode in all three

_KINDS = "random|expert|mixed|(medium|full)[-_]replay|medium([-_]expert)?"
_SET = re.compile(rf"(halfcheetah|hopper|walker2d|walker)[-_]({_KINDS})([-_]v\d+)?")
_TASK = re.compile(r"(halfcheetah|hopper|walker2d)(-v\d+)?")


def body_of_set(name: str) -> Body | None:
    """The body of a dataset with a name of D4RL's, such as hopper_medium or walker_mixed."""
    found = _SET.fullmatch(name.lower())
    return BODIES["walker2d" if found[1] == "walker" else found[1]] if found else None


def body_of_task(task: str) -> Body | None:
    """The body of a Gymnasium id such as Hopper-v4."""
    found = _TASK.fullmatch(task.lower())
    return BODIES[found[1]] if found else None


def normalised_score(task_or_set_name: str, return_: float) -> float | None:
    """0 is D4RL's random policy and 100 its expert; None where it has no reference returns."""
    body = body_of_task(task_or_set_name) or body_of_set(task_or_set_name)
    if body is None:
        return None
    return 100 * (return_ - body.random_return) / (body.expert_return - body.random_return)


class Published(NamedTuple):
    """A file as D4RL published it. Regenerated datasets under its name have other sizes."""

    bytes: int
    sha256: str


# hopper_medium_expert is expert data with hopper_mixed behind it, not with hopper_medium.
_V0 = """\
halfcheetah_medium         86943361 fcaf602daa063c3031b9c36b777342a1ba669b41eaa6113258ecb9fb789768c3
hopper_medium              54258063 3e6530f00ba134b375dbae56a2120d8e6d6d0afe33d402b0aca3ed3a09fca83b
walker2d_medium            84756933 181a62086f3f287759201a9643e805b9e56438a8532a3915825dbaa6555bd173
halfcheetah_medium_expert 174437297 c9c90f6b9fca3caa662d6a1f89808171bdb4050bab1db05d24bd85d909a333f1
hopper_medium_expert       65017623 3a024c1ecb4ff816963546d4423e2a57d8db85c9e0f4579aee9294e837d3fad0
walker2d_medium_expert    166972341 62b612b2fe593142391b52c1ee04814ea8ba36df5de007969ec50b8b1455f245
halfcheetah_mixed           9016685 61270f65dcadddae451607eeec68fdae50d0d6ae73fab185d9fc1979cc4f385d
hopper_mixed               10983879 901797e3f21a963b88ced7ab36ed8361ad548b470c38a0855bc265bb4dfb3de9
walker_mixed                8832937 d23588d4e07e58cbc276efea183edaa26eede5a44a1c2265adc8cdb6f68a56c7
"""
V0_FILES = {
    f"{name}.hdf5": Published(int(size), sha256)
    for name, size, sha256 in map(str.split, _V0.splitlines())
}
