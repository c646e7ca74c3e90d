from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from headrace.migrate.reading.facts import Option, Script
from headrace.migrate.stages.scripts.arguments import arguments, evaluating, on_cpu, sample_image


def option(dest: str, *, positional: bool = False, required: bool = False, action: str | None = None, **more: Any) -> Option:
    flags = (dest,) if positional else (f"--{dest}",)
    return Option(flags=flags, dest=dest, line=1, positional=positional, required=required, action=action, **more)


def test_arguments_are_carried_over_and_images_found(tmp_path: Path) -> None:
    (tmp_path / "data/test").mkdir(parents=True)
    for name in ("data/logo.png", "data/test/7.png"):
        Image.new("L", (8, 8)).save(tmp_path / name)
    options = (
        option("images", positional=True, required=True),
        option("arch"),
        option("verbose", action="store_true"),
        option("data"),
    )
    script = Script(
        path="p.py", roles=("predict",), loops=(), options=options, argparse_required=("images",), image_argument="images"
    )
    known = ["--arch", "resnet8", "--epochs", "3", "--verbose"]
    assert arguments(script, tmp_path, known) == ["--arch", "resnet8", "--verbose", "data/test/7.png"]
    with_data = arguments(script, tmp_path, [], data=Path("/datasets/x"))
    assert with_data == ["--data", "/datasets/x", "data/test/7.png"]


def test_what_cannot_be_guessed_is_named(tmp_path: Path) -> None:
    script = Script(
        path="p.py", roles=("evaluate",), loops=(), options=(option("fold", required=True),), argparse_required=("fold",)
    )
    assert arguments(script, tmp_path, []) == "it needs arguments that cannot be guessed: fold"


def test_an_image_is_made_where_there_is_none(tmp_path: Path) -> None:
    made = sample_image(tmp_path)
    assert Image.open(tmp_path / made).size == (224, 224)


def script_with(*options: Option) -> Script:
    return Script(path="main.py", roles=("train", "evaluate"), loops=(), options=options)


@pytest.mark.parametrize(
    ("asked", "given"),
    [
        (option("evaluate", action="store_true"), ["--lr", "1", "--evaluate"]),
        (option("eval", type="str2bool"), ["--lr", "1", "--eval", "true"]),
        (option("eval", type="bool"), ["--lr", "1", "--eval", "true"]),
        (option("test_phase", type="int", default=0), ["--lr", "1", "--test_phase", "1"]),
        (option("test", type="str"), None),
        (option("test", type="int", default=5), None),  # so many of something
        (option("evaluate", positional=True, action="store_true"), None),
        (option("verbose", action="store_true"), None),
    ],
)
def test_scripts_that_train_can_be_told_to_evaluate_only(asked: Option, given: list[str] | None) -> None:
    assert evaluating(script_with(option("lr"), asked), ["--lr", "1"]) == given


def test_what_is_switched_on_already_is_left_alone() -> None:
    assert evaluating(script_with(option("evaluate", action="store_true")), ["--evaluate"]) == ["--evaluate"]


@pytest.mark.parametrize(
    ("asked", "given"),
    [
        (option("device", default="cuda"), ["--device", "cpu"]),
        (option("device", type="int", default=0), None),
        (option("no_cuda", action="store_true"), ["--no_cuda"]),
        (option("use_cuda", type="str2bool", default=True), ["--use_cuda", "false"]),
        (option("cuda", type="bool", default=True), None),  # bool("false") is true
        (option("gpu", type="int", default=1), ["--gpu", "0"]),
        (option("gpu", type="int"), None),  # which one
    ],
)
def test_scripts_can_be_kept_to_the_cpu(asked: Option, given: list[str] | None) -> None:
    assert on_cpu(script_with(asked), []) == given
