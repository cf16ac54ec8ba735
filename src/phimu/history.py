"""What a model has measured while it learned: rows of metrics, as `phimu train` logs them."""

import importlib
import json
from pathlib import Path
from typing import Any

import numpy as np

from phimu.errors import InputError
from phimu.runs.files import write_atomically
from phimu.runs.log import read_metrics


class History(list[dict[str, Any]]):
    """Rows such as {"step": 500, "kind": "train", "return": -312.4, "td_loss": 0.41, ...}.

    The kind is "train", "evaluation", or the name of a phase before the policy's.
    """

    @property
    def columns(self) -> dict[str, list[Any]]:
        """The same as a table, a list per name; None where a row has no such number."""
        names = dict.fromkeys(name for row in self for name in row)
        return {name: [row.get(name) for row in self] for name in names}

    def series(self, name: str, kind: str = "train") -> tuple[np.ndarray, np.ndarray]:
        """The steps and the values of one number in the rows of one kind."""
        found = [(row["step"], row[name]) for row in self if row["kind"] == kind and name in row]
        steps, values = zip(*found, strict=True) if found else ((), ())
        return np.array(steps, int), np.array(values, float)

    def frame(self) -> Any:
        """A pandas DataFrame; pandas is no part of phimu."""
        try:
            pandas = importlib.import_module("pandas")
        except ImportError as error:
            raise InputError(
                "frame() needs pandas: pip install pandas, or use the rows or `columns`."
            ) from error
        return pandas.DataFrame(list(self))

    def write(self, path: Path) -> None:
        """As the log of a run."""
        write_atomically(path, "".join(json.dumps(row) + "\n" for row in self).encode())

    @classmethod
    def read(cls, path: Path, until: int) -> "History":
        """What a run has logged up to a step; nothing if it has no log."""
        rows = read_metrics(path) if path.is_file() else []
        return cls(row for row in rows if row["step"] <= until)
