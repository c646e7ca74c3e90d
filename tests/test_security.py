"""docs/security.md names every file of attacks, and none that is not there."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_every_wall_has_its_attack_and_every_attack_its_wall():
    page = (ROOT / "docs" / "security.md").read_text()
    named = set(re.findall(r"\btest_\w+\.py\b", page))
    attacks = {path.name for path in ROOT.glob("tests/*/attacks/test_*.py")}
    assert attacks <= named, f"docs/security.md does not name {sorted(attacks - named)}"
    there = {path.name for path in ROOT.glob("tests/**/test_*.py")}
    assert named <= there, f"docs/security.md names {sorted(named - there)}, which are not there"
