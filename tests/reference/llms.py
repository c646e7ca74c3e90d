"""docs/llms.txt (https://llmstxt.org): the pages of mkdocs.yml with what each is about, for programs that read."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[2]
LONGEST = 240  # characters of what a page is about


def llms() -> str:
    """The file: a title, a sentence, and a list for each section of the site."""
    site = yaml.safe_load((ROOT / "mkdocs.yml").read_text())
    lines = [f"# {site['site_name']}", "", f"> {site['site_description']}", ""]
    for section in site["nav"]:
        for title, pages in section.items():
            lines += [f"## {title}", "", *(_line(page) for page in pages), ""]
    return "\n".join(lines).rstrip() + "\n"


def _line(page: str) -> str:
    text = (ROOT / "docs" / page).read_text()
    title = re.search(r"^# (.*)$", text, re.MULTILINE)
    assert title is not None, f"docs/{page} has no title"
    about = "" if page.startswith("adr/") else _first_sentence(text[title.end() :])  # a decision begins with its date
    return f"- [{title[1]}]({page}){f': {about}' if about else ''}"


def _first_sentence(text: str) -> str:
    """Of the first paragraph that is prose, without the marks of Markdown."""
    for paragraph in re.split(r"\n\s*\n", text.strip("\n")):
        if re.match(r"```|    |[#|!<-]|\d+\. ", paragraph):
            continue
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", " ".join(paragraph.split()))
        sentence = re.split(r"(?<=[.:]) (?=[A-Z`])", plain)[0].rstrip(":")
        return sentence if len(sentence) <= LONGEST else sentence[:LONGEST].rsplit(" ", 1)[0] + " ..."
    return ""
