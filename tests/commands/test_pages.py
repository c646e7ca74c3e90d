"""What is read of a page, and which answers have the form that it shows."""

from pathlib import Path

import pytest

from tests.commands.pages import Command, File, has_form, steps
from tests.commands.running import FORKED, Plain, plain, without_comment

PAGE = Path("page.md")
TEXT = """# A page

    headrace doctor    # a comment
    headrace rules \\
        --json

- an item

    with a paragraph of its own

1. another

Text.

```console
$ headrace predict models photo.jpg
sea  0.5
$ cat x
```

```toml title="serve.toml"
models = "models"
```

```python
import this
```
"""


def test_commands_and_files_of_a_page():
    assert steps(PAGE, TEXT) == [
        Command(PAGE, 3, "headrace doctor    # a comment"),
        Command(PAGE, 4, "headrace rules \\\n    --json"),
        Command(PAGE, 16, "headrace predict models photo.jpg", ("sea  0.5",)),
        Command(PAGE, 18, "cat x"),
        File(PAGE, 22, "serve.toml", 'models = "models"\n'),
    ]


def test_a_fence_that_does_not_say_what_it_is_is_refused():
    with pytest.raises(ValueError, match=r"page.md:1: the fence says nothing"):
        steps(PAGE, "```\nheadrace doctor\n```\n")


@pytest.mark.parametrize(
    ("shown", "answered", "same"),
    [
        (['{"label": "tabby", "index": 281, ...}'], '{"label": "sea", "index": 2, "more": []}', True),
        (['{"label": "tabby"}'], '{"name": "sea"}', False),
        (["image  best  score", "a.jpg  sea  54.0%"], "image     best  score\na.jpg     sea   3.1%\n", True),
        (["a.jpg  sea  54.0%"], "a.jpg     leaf  3.1%\n", False),
        (["first", "...", "last"], "first\nbetween\nlast", True),
        (["last", "first"], "first\nlast", False),
    ],
)
def test_the_form_of_an_answer(shown, answered, same):
    assert has_form(tuple(shown), answered) == same


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("headrace rules    # all of them", "headrace rules"),
        ("curl 'http://a/#b' # x", "curl 'http://a/#b'"),
        ("headrace rules", "headrace rules"),
    ],
)
def test_comments_are_no_part_of_a_command(typed, meant):
    assert without_comment(typed) == meant


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("A=1 headrace serve models --id 'a b'", Plain(".", {"A": "1"}, ["-P", str(FORKED), "serve", "models", "--id", "a b"])),
        ("headrace predict models 'more/**/*.png'", Plain(".", {}, ["-P", str(FORKED), "predict", "models", "more/**/*.png"])),
        ("cd a/b && python fit.py", Plain("a/b", {}, ["fit.py"])),
        ("headrace predict models more/*.png", None),
        ("curl -s localhost | headrace predict models -", None),
    ],
)
def test_only_what_needs_no_shell_goes_without_one(text, found):
    assert plain(text) == found
