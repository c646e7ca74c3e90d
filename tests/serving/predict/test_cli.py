"""`headrace predict` as a user meets it."""

import json
import subprocess
import sys

import pytest


def headrace(*arguments, stdin=b"", **options):
    command = [sys.executable, "-m", "headrace", "predict", *map(str, arguments), "--threads", "1"]
    return subprocess.run(command, check=False, capture_output=True, input=stdin, timeout=240, **options)


@pytest.fixture
def photo(tmp_path, make_photo):
    path = tmp_path / "photo.png"
    path.write_bytes(make_photo(1))
    return path


def test_json_is_a_line_for_each_image_and_errors_are_rows(tasks, photo, tmp_path):
    done = headrace(tasks / "single", photo, tmp_path / "none.png", "-", "--format", "json", stdin=photo.read_bytes())
    first, second, third = map(json.loads, done.stdout.splitlines())
    assert done.returncode == 1
    assert b"Traceback" not in done.stderr
    assert (first["image"], first["model"], first["version"]) == (str(photo), "single", "1")
    assert second == {"image": str(tmp_path / "none.png"), "error": "the file cannot be read: No such file or directory"}
    assert third == first | {"image": "-"}


def test_text_is_a_table(warm_command, tasks, photo):
    done = warm_command("predict", tasks / "single", photo, "--top-k", 2, "--threads", 1)
    assert done.returncode == 0, done.stderr
    heading, line = done.stdout.splitlines()
    assert heading.split() == ["image", "best", "score", "next"]
    assert line.split()[0] == str(photo)
    assert len(line.split()) == 5  # one more class


def test_torch_is_not_loaded(tasks, photo):
    code = (
        "import sys; from headrace.cli import app; app(sys.argv[1:], standalone_mode=False); "
        "assert not {'torch', 'fastapi', 'pyarrow', 'spdl'} & set(sys.modules)"
    )
    command = [sys.executable, "-c", code, "predict", str(tasks / "single"), str(photo)]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["nowhere", "a.png"], "nowhere is no folder or file"),
        (["{tasks}", "a.png"], "holds 6 models; choose one with headrace predict"),
        (["{tasks}/tensors", "a.png"], "how an image becomes its input"),
        (["{tasks}/single", "a.png", "--top-k", "0"], "--top-k must be a whole number from 1 to 1000"),
        (["{tasks}/single"], "Missing argument"),
    ],
)
def test_mistakes_are_said(warm_command, tasks, arguments, says):
    done = warm_command("predict", *(argument.format(tasks=tasks) for argument in arguments))
    assert done.returncode == 2
    assert says in " ".join(done.stderr.replace("│", " ").split())
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
