"""Version policies, and signatures of folders."""

import os
import shutil

import pytest

from headrace.runtime.artifact.model_config import parse_config
from headrace.serving.models.versions import VersionPolicy, tree_signature, version_signature


@pytest.mark.parametrize(
    ("text", "candidates", "enough", "absent"),
    [
        ("", [10, 3, 2], 1, []),
        ("version_policy { latest { num_versions: 2 } }", [10, 3, 2], 2, []),
        ("version_policy { latest { } }", [10, 3, 2], 1, []),
        ("version_policy { all { } }", [10, 3, 2], None, []),
        ("version_policy { specific { versions: [2, 3, 7] } }", [3, 2], None, [7]),
    ],
)
def test_policies_are_those_of_triton(text, candidates, enough, absent):
    policy = VersionPolicy.of(parse_config(f'name: "m"\n{text}'))
    assert policy.candidates([2, 10, 3]) == candidates
    assert policy.absent([2, 10, 3]) == absent
    assert [count for count in range(4) if policy.satisfied(count)] == ([] if enough is None else list(range(enough, 4)))


def _model(tmp_path):
    folder = tmp_path / "m"
    for version in ("1", "2"):
        (folder / version / "deep").mkdir(parents=True)
        (folder / version / "model.onnx").write_bytes(b"graph")
        (folder / version / "deep" / "more").write_bytes(b"data")
    (folder / "labels.txt").write_text("a\nb\n")
    (folder / "config.pbtxt").write_text('name: "m"')
    return folder


def _touched(path):
    os.utime(path, ns=(1, 1))


@pytest.mark.parametrize(
    ("change", "differs"),
    [
        (lambda folder: None, False),
        (lambda folder: (folder / "1" / "deep" / "more").write_bytes(b"other"), True),
        (lambda folder: _touched(folder / "1" / "model.onnx"), True),
        (lambda folder: (folder / "1" / "new").write_bytes(b""), True),
        (lambda folder: (folder / "1" / "deep" / "more").unlink(), True),
        (lambda folder: (folder / "labels.txt").write_text("c\n"), True),
        (lambda folder: shutil.rmtree(folder / "1"), True),
        (lambda folder: (folder / "2" / "model.onnx").write_bytes(b"other"), False),
        (lambda folder: (folder / "3").mkdir(), False),
        (lambda folder: _touched(folder / "config.pbtxt"), False),  # what it says counts, and is given
    ],
)
def test_a_version_differs_when_what_it_is_made_of_was_written(tmp_path, change, differs):
    folder, config = _model(tmp_path), parse_config('name: "m"')
    before = version_signature(folder, 1, config)
    assert version_signature(folder, 1, config) == before
    change(folder)
    assert (version_signature(folder, 1, config) != before) is differs


def test_a_version_exchanged_for_an_equal_one_differs(tmp_path):
    folder, config = _model(tmp_path), parse_config('name: "m"')
    before = version_signature(folder, 1, config)
    shutil.copytree(folder / "1", tmp_path / "copy")
    shutil.rmtree(folder / "1")
    (tmp_path / "copy").rename(folder / "1")
    assert version_signature(folder, 1, config) != before


def test_what_the_config_says_counts_except_which_versions_serve(tmp_path):
    folder = _model(tmp_path)
    before = version_signature(folder, 1, parse_config('name: "m"'))
    assert version_signature(folder, 1, parse_config('name: "m" version_policy { all { } }')) == before
    assert version_signature(folder, 1, parse_config('name: "m" max_batch_size: 4')) != before


def test_the_signature_of_what_is_not_there(tmp_path):
    assert tree_signature(tmp_path / "nothing") == tree_signature(tmp_path / "nothing")
