import json

import pytest

from headrace.migrate.survey.model_archives import MANIFEST, model_archives
from tests.migrate.repositories import written


def test_an_unpacked_archive_says_what_it_is_made_of(tmp_path):
    model = {"modelName": "net", "handler": "serve.py:entry", "modelFile": "net.py", "serializedFile": "net.pth"}
    root = written(tmp_path, {MANIFEST: json.dumps({"model": model}), "serve.py": "", "net.py": "", "index_to_name.json": "{}"})
    (found,) = model_archives(root)
    assert (found.name, found.handler, found.function, found.own_handler) == ("net", "serve.py", "entry", True)
    assert (found.model_file, found.serialized_file, found.extra_files) == ("net.py", "net.pth", ("index_to_name.json",))


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"model": []}', '{"model": {"handler": 3}}', "[" * 5000])
def test_a_manifest_that_says_nothing_is_none(tmp_path, text):
    assert model_archives(written(tmp_path, {MANIFEST: text})) == ()


def test_documented_commands_are_read_with_their_continuations(tmp_path):
    readme = """
```bash
torch-model-archiver --model-name squeeze --version 1.0 --model-file ./nets/model.py \\
    --serialized-file squeeze-1.pth --handler image_classifier --extra-files "nets/index_to_name.json, nets/other.py"
torch-model-archiver --model-name=own --handler=own_handler.py && torchserve --start
torch-model-archiver --model-name x --handler <your handler>
```
"""
    files = {"docs/README.md": readme, "nets/model.py": "", "nets/index_to_name.json": "", "docs/own_handler.py": ""}
    built_in, own = model_archives(written(tmp_path, files))
    assert (built_in.handler, built_in.own_handler, built_in.model_file) == ("image_classifier", False, "nets/model.py")
    assert built_in.serialized_file == "squeeze-1.pth"  # which is not here
    assert built_in.extra_files == ("nets/index_to_name.json", "other.py")
    assert (own.name, own.handler) == ("own", "docs/own_handler.py")


def test_a_file_that_lies_outside_is_none_of_the_repositorys(tmp_path):
    (tmp_path / "outside.py").write_text("")
    command = "torch-model-archiver --model-name x --handler ../outside.py --model-file ../../outside.py\n"
    (found,) = model_archives(written(tmp_path / "repository", {"README.md": command}))
    assert found.handler == "outside.py"
    assert found.model_file == "outside.py"
