"""What trains, keeps and evaluates runs knows the protocol of agents, and none of them by name."""

import ast
from pathlib import Path

import pytest

import phimu
from phimu.agents import AGENTS

SOURCE = Path(next(iter(phimu.__path__)))
FILES = [
    *(
        path
        for folder in ("training", "runs", "evaluation")
        for path in (SOURCE / folder).glob("*")
    ),
    SOURCE / "session.py",
]
ALLOWED = {"phimu.agents", "phimu.agents.protocol", "phimu.agents.schedule"}


def classes(module: str) -> set[str]:
    """The public classes that an agent's file makes: its settings and its state."""
    path = SOURCE.parent / (module.replace(".", "/") + ".py")
    nodes = ast.parse(path.read_text()).body
    return {node.name for node in nodes if isinstance(node, ast.ClassDef)}


NAMES = {*AGENTS, *(name for entry in AGENTS.values() for name in classes(entry.module))}


def imported(tree: ast.AST) -> set[str]:
    """Every module that a file may import, also within functions; `from a import b` may be a.b."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute here"
            found |= {node.module or "", *(f"{node.module}.{a.name}" for a in node.names)}
    return found


def is_module(name: str) -> bool:
    path = SOURCE.parent / name.replace(".", "/")
    return path.with_suffix(".py").is_file() or path.is_dir()


def words(tree: ast.AST) -> set[str]:
    """Identifiers, attributes, and texts that are no documentation."""
    documented = {
        node.body[0].value
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            found.add(node.id)
        elif isinstance(node, ast.Attribute):
            found.add(node.attr)
        elif isinstance(node, ast.alias):
            found.add(node.name)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            found |= set() if node in documented else {node.value}
    return found


def test_there_is_something_to_look_for():
    """The readers below see what they are to see."""
    assert {"ctrl-ucb-m", "sac", "Sac", "CtrlUcb", "CtrlUcbState", "Td3Bc"} <= NAMES
    assert len([path for path in FILES if path.suffix == ".py"]) > 20
    text = (
        "def f():\n    '''sac'''\n    from phimu.agents import sac\n    x.Sac if a == 'brac' else 1"
    )
    assert "phimu.agents.sac" in imported(ast.parse(text))
    assert words(ast.parse(text)) & NAMES == {"sac", "Sac", "brac"}
    assert words(ast.parse("'''sac'''\ndef f():\n    '''brac'''")) & NAMES == set()


@pytest.mark.parametrize(
    "path", [path for path in FILES if path.suffix == ".py"], ids=lambda path: path.stem
)
def test_no_agent_is_known_here(path: Path):
    tree = ast.parse(path.read_text())
    agents = {name for name in imported(tree) if name.startswith("phimu.agents")}
    assert {name for name in agents if is_module(name)} <= ALLOWED
    assert words(tree) & NAMES == set()
