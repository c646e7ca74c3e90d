import os
import subprocess
import sys
from pathlib import Path

import pytest

import headrace
from headrace.migrate.proving.rehearsal_protocol import Rehearsal, RehearsalReport
from headrace.migrate.worker.rehearsal.edges import data

CLASSES = "classes = ['cat', 'dog']\n"


def test_a_missing_image_is_made_where_it_is_opened(on_stage):
    world = on_stage(data)
    names = world.play("from PIL import Image\nsize = Image.open('images/x.jpg').convert('RGB').size\n")
    assert names["size"] == (256, 256)
    assert [(item.edge, item.what, item.where) for item in world.stage.standins] == [("data", "images/x.jpg", "main.py:2")]


def test_what_is_here_is_not_touched(on_stage):
    world = on_stage(data)
    (world.root / "x.txt").write_text("mine")
    (world.root / "there").mkdir()
    names = world.play("import os\ntext = open('x.txt').read()\nfound = os.listdir('there')\n")
    assert (names["text"], names["found"]) == ("mine", [])
    assert world.said("data") == []


@pytest.mark.parametrize(
    "root", ["/nowhere/headrace", "/usr/src/headrace-app", "/run/media/headrace", "/dev/shm/headrace-data"]
)
def test_a_path_outside_of_the_repository_is_redirected(on_stage, root):
    world = on_stage(data, files={"hints.py": CLASSES})
    names = world.play(
        f"import os\nroot = '{root}/train'\nbefore = os.path.exists(root)\nfound = sorted(os.listdir(root))\n"
        "files = [os.path.join(d, f) for d, _, fs in os.walk(root) for f in fs]\n"
        "after = os.path.exists(root), os.path.isdir(os.path.join(root, 'cat'))\nhead = open(files[0], 'rb').read(2)\n"
    )
    assert (names["before"], names["found"], names["after"], names["head"]) == (
        False,
        ["cat", "dog"],
        (True, True),
        b"\xff\xd8",
    )
    assert subprocess.run(["ls", root], capture_output=True, check=False).returncode


@pytest.mark.parametrize("root", ["/usr/share/headrace", "/lib64/headrace", "/etc/headrace", "/dev/headrace", sys.prefix])
def test_of_what_is_the_machines_nothing_is_made(on_stage, root):
    world = on_stage(data, files={"hints.py": CLASSES})
    script = f"import os\ntry:\n    os.listdir('{root}/train')\nexcept FileNotFoundError:\n    missing = True\n"
    assert world.play(script)["missing"]


@pytest.mark.parametrize(
    "look",
    [
        "import glob\nfound = glob.glob('data/*/*.png')",
        "import glob, os\nfound = glob.glob(os.path.join('data', '**', '*.png'), recursive=True)",
        "from pathlib import Path\nfound = list(Path('data').glob('*/*.png'))",
        "from pathlib import Path\nfound = list(Path('data').rglob('*.png'))",
    ],
)
def test_patterns_find_what_they_ask_for(on_stage, look):
    world = on_stage(data, files={"hints.py": CLASSES})
    assert len(world.play(look + "\n")["found"]) == 20
    assert world.said("data") == ["data"]


def test_a_script_that_copes_without_a_file_is_left_to_it(on_stage):
    world = on_stage(data)
    names = world.play(
        "import json\ntry:\n    best = json.load(open('best.json'))\nexcept FileNotFoundError:\n    best = None\n"
    )
    assert names["best"] is None
    assert world.said("data") == []


def test_the_folder_of_an_output_is_made(on_stage):
    world = on_stage(data)
    world.play("with open('runs/1/log.txt', 'w') as file:\n    file.write('x')\n")
    assert (world.root / "runs/1/log.txt").read_text() == "x"
    assert world.said("data") == []


def test_what_nobody_can_make_is_missing_as_before(on_stage):
    world = on_stage(data)
    with pytest.raises(FileNotFoundError):
        world.play("open('config.yaml')\n")
    with pytest.raises(FileNotFoundError):
        world.play("import os\nos.stat('x.jpg')\n")


def test_what_libraries_look_for_is_not_made(on_stage, tmp_path, monkeypatch):
    world = on_stage(data)
    (tmp_path / "rehearsed_elsewhere.py").write_text(
        "found = True\ntry:\n    open('x.json')\nexcept OSError:\n    found = False\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    assert world.play("import rehearsed_elsewhere\nfound = rehearsed_elsewhere.found\n")["found"] is False


def test_outputs_may_lie_where_no_folder_can_be_made(rehearsed):
    text = (
        "import os, torch\nos.makedirs('/no/such/place/net', exist_ok=True)\n"
        "open('/no/such/place/net/log.txt', 'w').write('x')\ntorch.save({'a': 1}, '/no/such/place/net/last.pth')\n"
        "torch.save({'a': 2}, 'out/deep/last.pth')\n"
        "print(torch.load('/no/such/place/net/last.pth'), torch.load('out/deep/last.pth'))\n"
    )
    done = rehearsed({"main.py": text})
    assert (done.report.ended, done.stdout) == ("finished", "{'a': 1} {'a': 2}\n"), done.stderr


def test_nothing_is_made_among_installed_packages(rehearsed):
    text = (
        "import os, numpy\nfolder = os.path.dirname(os.path.dirname(numpy.__file__))\n"
        "open(os.path.join(folder, 'x/labels.txt'))\n"
    )
    done = rehearsed({"main.py": text})
    assert (done.report.ended, done.standins("data")) == ("stopped", [])


def test_paths_that_are_given_by_name(on_stage):
    world = on_stage(data, files={"hints.py": CLASSES})
    names = world.play(
        "import glob, os\nos.makedirs(name='out/deep', exist_ok=True)\nos.mkdir(path='out/more')\n"
        "head = open(file='images/x.jpg', mode='rb').read(2)\nlisted = sorted(os.listdir(path='train'))\n"
        "found = len(glob.glob(pathname='other/*/*.png'))\n"
    )
    assert (names["head"], names["listed"], names["found"]) == (b"\xff\xd8", ["cat", "dog"], 20)
    assert os.path.isdir("out/deep")
    assert os.path.isdir("out/more")


def test_what_this_package_looks_for_is_not_made_also_where_it_is_imported_through_a_link(tmp_path):
    (tmp_path / "links").mkdir()
    (tmp_path / "links" / "headrace").symlink_to(Path(headrace.__file__).parent)
    (tmp_path / "thing").mkdir()
    (tmp_path / "thing" / "main.py").write_text(
        "import headrace, torch\nfrom headrace.migrate.worker.checkpoint import load_weights\n"
        "load_weights(torch.nn.Linear(2, 2), 'net.pth')\n"
    )
    made, report = tmp_path / "made", tmp_path / "report.json"
    request = Rehearsal(root=str(tmp_path / "thing"), script="main.py", made=str(made), report=str(report))
    (tmp_path / "request.json").write_text(request.to_json())
    command = [sys.executable, "-P", "-m", "headrace.migrate.worker.rehearsal", str(tmp_path / "request.json")]
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "links"), "HOME": str(tmp_path)}
    subprocess.run(command, env=environment, cwd=tmp_path, check=False, capture_output=True)
    found = RehearsalReport.from_json(report.read_text())
    assert found.why == "ArtifactError: net.pth: no such checkpoint"
    assert found.standins == ()


def test_what_was_written_elsewhere_is_removed_and_renamed_there(rehearsed):
    gone = "/nowhere/headrace"
    text = f"""
import os, shutil
for name in ("a", "b", "c", "two/f"):
    with open(f"{gone}/one/{{name}}.pth", "w") as file:
        file.write(name)
os.remove("{gone}/one/a.pth")
os.replace("{gone}/one/b.pth", "{gone}/one/two/d.pth")
os.rename(src="{gone}/one/c.pth", dst="here.pth")
os.rename("here.pth", "{gone}/one/e.pth")
os.rename("{gone}/one/e.pth", "here.pth")
print(sorted(os.listdir("{gone}/one")), open("{gone}/one/two/d.pth").read(), open("here.pth").read())
shutil.rmtree("{gone}/one")
os.rmdir("{gone}")
print(os.path.exists("{gone}"))
os.mkdir("own")
os.rmdir("own")
try:
    os.remove("{gone}/never.pth")
except FileNotFoundError as error:
    print(error)
"""
    done = rehearsed({"main.py": text})
    assert done.stdout.splitlines() == [
        "['two'] b c", "False", f"[Errno 2] No such file or directory: '{gone}/never.pth'",
    ], done.stderr  # fmt: skip
    assert done.report.ended == "finished"
    assert "nowhere" not in os.listdir("/")


@pytest.mark.parametrize(
    "line",
    [
        "shutil.copy('net.py', OUT)",
        "shutil.copy2('net.py', OUT)",
        "shutil.copyfile('net.py', OUT); os.chmod(path=OUT, mode=0o600); os.utime(OUT)",
        "open(OUT, 'w').write(open('net.py').read()); Path(OUT).touch(); Path(OUT).chmod(0o600)",
    ],
)
def test_a_copy_of_the_sources_is_kept_elsewhere(line, rehearsed):
    text = f"import os, shutil\nfrom pathlib import Path\nOUT = '/nowhere/headrace/net.py'\n{line}\nprint(open(OUT).read())\n"
    done = rehearsed({"main.py": text, "net.py": "depth = 2\n"})
    assert done.stdout == "depth = 2\n\n", done.report.why
    assert "nowhere" not in os.listdir("/")


@pytest.mark.parametrize("line", ["os.mkdir('out')", "Path('out').mkdir()", "os.makedirs('out')"])
def test_a_folder_that_a_script_makes_twice_is_its_own_error(rehearsed, line):
    done = rehearsed({"main.py": f"import os\nfrom pathlib import Path\n{line}\nprint()\n{line}\n"})
    assert (done.report.ended, done.report.where) == ("stopped", "main.py:5")
    assert "FileExistsError" in done.report.why


def test_a_path_of_bytes_is_written_where_its_folder_was_made(rehearsed):
    text = (
        "import os\nos.makedirs('/srv/runs/one', exist_ok=True)\n"
        "with open(b'/srv/runs/one/events', 'wb') as file:\n    file.write(b'x')\nprint(open(b'/srv/runs/one/events').read())\n"
    )
    done = rehearsed({"main.py": text})
    assert (done.report.ended, done.stdout) == ("finished", "x\n"), done.report.why


@pytest.mark.parametrize("copy", ["copy", "copy2", "copyfile", "move"])
def test_files_are_copied_to_a_folder_that_was_made_elsewhere(rehearsed, copy):
    """A notebook of Kaggle's shares its images out among folders of its own."""
    text = (
        "import os, shutil\nsource, target = '/nowhere/input/birds', '/nowhere/working/parts/train'\n"
        "for kind in os.listdir(source):\n    os.makedirs(os.path.join(target, kind), exist_ok=True)\n"
        "    for name in os.listdir(os.path.join(source, kind)):\n"
        f"        shutil.{copy}(os.path.join(source, kind, name), os.path.join(target, kind, name))\n"
        "print(len(os.listdir(target)), os.path.getsize(os.path.join(target, kind, name)) > 0)\n"
    )
    done = rehearsed({"main.py": text}, classes=3)
    assert (done.report.ended, done.stdout) == ("finished", "3 True\n"), done.report.why


def test_what_a_script_reads_beside_the_folder_of_the_repository_is_read_where_it_is(on_stage):
    """Its author ran it from the folder above; made weights stood in for those that are here."""
    world = on_stage(data, files={"test.txt": "own"})
    (world.root / "weights").mkdir()
    (world.root / "weights/net.txt").write_text("mine")
    names = world.play(
        "import os\npath = './digits/weights/net.txt'\nthere = os.path.exists(path), os.path.exists('digits/weights')\n"
        "text = open(path).read() + open('./digits/test.txt').read()\n"
        "with open('digits/new.txt', 'w') as file:\n    file.write('new')\nnew = open('digits/new.txt').read()\n"
    )
    assert (names["there"], names["text"], names["new"]) == ((True, False), "mineown", "new")
    assert world.said("packages") == [
        "./digits/weights/net.txt is not here; weights/net.txt was read",
        "./digits/test.txt is not here; test.txt was read",
    ]
    assert world.said("data") == []
