"""The algorithm that README.md shows is the one that runs."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_every_line_of_the_algorithm_is_in_the_agent() -> None:
    (block,) = re.findall(r"^```py\n(.*?)^```", (ROOT / "README.md").read_text(), re.S | re.M)
    lines = [line.split("  #")[0].strip() for line in block.splitlines()]
    shown = [line for line in lines if line and not line.startswith("#")]
    source = (ROOT / "src" / "phimu" / "agents" / "ctrl_ucb.py").read_text()
    own = {line.strip() for line in source.splitlines()}
    assert len(shown) > 8
    assert [line for line in shown if line not in own] == []


def test_every_agent_has_its_file_page_and_row() -> None:
    from phimu.agents import AGENTS

    text = (ROOT / "README.md").read_text()
    pattern = r"^\| (`[`\w, -]+`) \| `(\w+\.py)` \| \[[^]]+\]\((docs/[\w-]+\.md)\)"
    rows = re.findall(pattern, text, re.M)
    named = {agent: row[1:] for row in rows for agent in row[0].replace("`", "").split(", ")}
    assert named.keys() == AGENTS.keys()
    for agent, (file, page) in named.items():
        assert f"phimu.agents.{file[:-3]}" == AGENTS[agent].module
        assert page == f"docs/{AGENTS[agent].page or agent}.md"
