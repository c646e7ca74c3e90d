"""Repositories of a few files."""

import textwrap

from headrace.migrate.survey.survey import survey


def written(root, files):
    """The folder, with files of these texts at these paths."""
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    return root


def surveyed(root, **files):
    """The survey of modules with these texts, which may be indented; the module models/net.py is `models__net`."""
    return survey(written(root, {f"{name.replace('__', '/')}.py": textwrap.dedent(text) for name, text in files.items()}))
