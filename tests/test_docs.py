"""Code in the documentation runs as it stands."""

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parent.parent / "docs"
# budget.md has pieces that begin in the middle of somebody's program
BLOCKS = [
    pytest.param(code, id=f"{path.name}-{number}")
    for path in sorted(DOCS.glob("*.md"))
    for number, code in enumerate(re.findall(r"^```python\n(.*?)^```$", path.read_text("utf-8"), re.M | re.S))
    if "import" in code
]


@pytest.mark.parametrize("code", BLOCKS)
def test_blocks_run(code, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # ledgers are made there
    exec(compile(code, "docs", "exec"), {"__name__": "docs"})


def test_there_are_blocks():
    assert len(BLOCKS) >= 4
