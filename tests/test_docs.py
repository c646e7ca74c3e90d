"""What the documents point at is there: pages, headings, commands and their options."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = sorted(
    page
    for pattern in ("*.md", "docs/**/*.md", "docker/*.md", "examples/**/*.md")
    for page in ROOT.glob(pattern)
    if page.name != "CHANGELOG.md"  # tells of what was
)
_FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
# `headrace serve ... --option`, in a line of its own or in a sentence, up to what ends the command.
_COMMAND = re.compile(r"(?:(?<=`)|(?<=^)|(?<=^    )|(?<=\$ ))headrace ([\w-]+)( [^`#|&;\n]*)?", re.MULTILINE)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)\s]+)\)", _FENCED.sub("", page.read_text())):
        if target.startswith(("https:", "http:", "mailto:")):
            continue
        name, _, anchor = target.partition("#")
        linked = (page.parent / name).resolve() if name else page
        assert linked.exists(), f"{page.relative_to(ROOT)} links to {target}, which is not there"
        if anchor and linked.suffix == ".md":
            headings = re.findall(r"^#+ (.*)$", _FENCED.sub("", linked.read_text()), re.MULTILINE)
            assert anchor in map(_anchor, headings), f"{page.relative_to(ROOT)} links to {target}, which is no heading there"


def _anchor(heading: str) -> str:
    """As GitHub names a heading."""
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
    return re.sub(r"[^\w\- ]", "", text.replace("`", "").lower()).strip().replace(" ", "-")


def test_commands_and_options_exist(warm_headrace):
    shown: dict[str, set[str]] = {}
    for page in PAGES:
        for command, rest in _COMMAND.findall(page.read_text()):
            words = rest.split()
            if command == "run":  # what follows the script is the script's
                words = words[: next((at for at, word in enumerate(words) if word.endswith((".py", ".ipynb", "SCRIPT"))), None)]
            sub = words[0] if command == "triton" and words and re.fullmatch(r"[a-z]+", words[0]) else ""
            name = f"{command} {sub}".strip()
            if name not in shown:
                helped = warm_headrace(*name.split(), "--help")
                assert helped.returncode == 0, f"{page.relative_to(ROOT)} shows headrace {name}, which does not exist"
                shown[name] = set(re.findall(r"--[\w-]+", helped.stdout))
            for option in re.findall(r"(?<![\w-])--[a-z][\w-]*", " ".join(words)):
                assert option in shown[name], f"{page.relative_to(ROOT)} shows headrace {name} {option}, which does not exist"
    assert len(shown) > 10


def test_every_page_has_its_place_on_the_site():
    """mkdocs would build a page without one, too, and nobody would find it."""
    named = re.findall(r"^ +- (\S+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE)
    assert sorted(named) == sorted(str(page.relative_to(ROOT / "docs")) for page in (ROOT / "docs").rglob("*.md"))
