"""docker/locks: every package by its digests, from no place but the index that everybody has, and all that the extras name."""

import re
import tomllib
from pathlib import Path

import pytest
from packaging.markers import default_environment
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]
LOCKS = sorted((ROOT / "docker" / "locks").glob("*.txt"))
ENTRY = re.compile(
    r"(?m)^([a-z0-9][a-z0-9._-]*(?:\[[a-z,]+\])?)==([^ \n]+) \\\n((?:    --hash=sha256:[0-9a-f]{64}(?: \\)?\n)+)"
)


def packages(path: Path) -> dict[str, str]:
    return {name.partition("[")[0]: version for name, version, _ in ENTRY.findall(path.read_text())}


@pytest.mark.parametrize("path", LOCKS, ids=lambda path: path.stem)
def test_nothing_stands_in_a_lock_but_packages_with_digests(path):
    rest = ENTRY.sub("", path.read_text())
    assert [line for line in rest.splitlines() if line.strip() and not line.lstrip().startswith("#")] == []
    assert not re.search(r"://|index|find-links", path.read_text())
    assert packages(path)


def wanted(extra: str) -> set[str]:
    """The packages that an extra names, those of its parts included, on Linux and x86-64."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    here = {**default_environment(), "platform_machine": "x86_64", "sys_platform": "linux"}
    found = set()
    for text in (*project["dependencies"], *project["optional-dependencies"][extra]):
        requirement = Requirement(text)
        if requirement.name == "headrace":
            found |= set().union(*(wanted(part) for part in requirement.extras))
        elif requirement.marker is None or requirement.marker.evaluate(here):
            found.add(requirement.name)
    return found


@pytest.mark.parametrize("image", ["serve", "cpu", "cuda"])
def test_what_the_extras_name_is_locked(image):
    locked = packages(ROOT / "docker" / "locks" / f"{image}.txt")
    missing = (wanted(image) | wanted("telemetry")) - set(locked)
    assert missing == ({"torch"} if image == "cpu" else set())


def test_the_others_are_what_they_are_for():
    folder = ROOT / "docker"
    named = {Requirement(line).name for line in (folder / "triton-requirements.txt").read_text().splitlines() if line[0] != "#"}
    assert set(packages(folder / "locks" / "triton.txt")) == named
    system = tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]["requires"]
    assert set(packages(folder / "locks" / "build.txt")) == {Requirement(text).name for text in system}
