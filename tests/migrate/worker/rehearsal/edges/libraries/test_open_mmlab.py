import argparse
import json

import pytest

from headrace.migrate.worker.rehearsal.edges.libraries.open_mmlab import Config, DictAction

FILES = {
    "configs/base.py": "import os\nmodel = dict(name='resnet', head=dict(classes=10, drop=0.1))\nseed = len(os.sep)\n",
    "configs/other.py": "lr = 0.1\n",
    "configs/net.py": "_base_ = ['base.py', './other.py']\nmodel = dict(head=dict(classes=3), sizes=[1, 2])\nlr = 0.2\n",
}


def written(folder, files=FILES):
    for name, text in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    return folder / "configs"


def test_a_file_is_read_over_its_bases(tmp_path):
    config = Config.fromfile(str(written(tmp_path) / "net.py"))
    assert config == {
        "model": {"name": "resnet", "head": {"classes": 3, "drop": 0.1}, "sizes": [1, 2]},
        "seed": 1,
        "lr": 0.2,
    }
    assert (config.model.head.classes, config.get("nothing"), config.filename) == (3, None, str(tmp_path / "configs/net.py"))
    assert list(config._cfg_dict.items()) == list(config.items())
    with pytest.raises(AttributeError):
        _ = config.nothing


def test_a_part_may_leave_what_is_under_it(tmp_path):
    text = "_base_ = 'base.py'\nmodel = dict(head=dict(_delete_=True, kind='mlp'))\n"
    folder = written(tmp_path, {**FILES, "configs/net.py": text})
    assert Config.fromfile(folder / "net.py").model == {"name": "resnet", "head": {"kind": "mlp"}}


@pytest.mark.parametrize(
    ("ending", "text"), [(".json", json.dumps({"a": {"b": 1}})), (".yaml", "a:\n  b: 1\n"), (".yml", "a: {b: 1}")]
)
def test_other_files(tmp_path, ending, text):
    (tmp_path / f"config{ending}").write_text(text)
    assert Config.fromfile(tmp_path / f"config{ending}").a.b == 1


def test_options_of_the_command_line_are_set_by_their_paths():
    parser = argparse.ArgumentParser()
    parser.add_argument("--options", nargs="+", action=DictAction)
    given = parser.parse_args(
        ["--options", "model.width=2", "model.names=a,b", "stages.1.depth=3", "pretrained=True", "x=[1, 2]"]
    )
    config = Config({"model": {"width": 1}, "stages": [{"depth": 1}, {"depth": 1}]})
    config.merge_from_dict(given.options)
    assert config == {
        "model": {"width": 2, "names": ["a", "b"]},
        "stages": [{"depth": 1}, {"depth": 3}],
        "pretrained": True,
        "x": [1, 2],
    }
    assert config.dump() == config.pretty_text
    assert "pretrained = True" in config.text


@pytest.mark.parametrize(
    "imported", ["import mmcv\nConfig = mmcv.Config", "from mmcv.utils import Config", "from mmengine.config import Config"]
)
def test_a_script_reads_its_configuration_and_uses_nothing_else_of_them(rehearsed, imported):
    library = imported.split()[1].partition(".")[0]
    files = {**FILES, "main.py": f"{imported}\nprint(Config.fromfile('configs/net.py').model.head.classes)\n"}
    done = rehearsed(files)
    assert (done.report.ended, done.stdout) == ("finished", "3\n"), done.report.why
    assert f"{library} is not installed; what its Config does stood in" in [item.what for item in done.standins("libraries")]
    used = f"import {library}.cnn\nprint({library}.cnn.ConvModule(3, 4))\n"
    done = rehearsed({**FILES, "main.py": files["main.py"] + used})
    assert (done.report.ended, f"{library}.cnn.ConvModule is used" in done.report.why) == ("stopped", True), done.report.why
