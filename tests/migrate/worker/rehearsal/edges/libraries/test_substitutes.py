import importlib.util

import pytest


@pytest.mark.parametrize(("library", "text"), [("simplejson", "dumps([1])"), ("oyaml", "safe_load('[1]')")])
def test_a_library_that_does_what_another_does(rehearsed, library, text):
    if importlib.util.find_spec(library) is not None:
        pytest.skip(f"{library} is installed")
    done = rehearsed({"main.py": f"import {library} as own\nprint(own.{text})\n"})
    assert (done.report.ended, done.stdout) == ("finished", "[1]\n"), done.report.why
    assert [item.what for item in done.standins("libraries")] == [f"{library} is not installed; what it does stood in"]


@pytest.mark.parametrize("where", ["import gdown\n", "def fetch():\n    global gdown\n    import gdown\nfetch()\n"])
def test_what_gdown_would_fetch_is_made(rehearsed, where):
    if importlib.util.find_spec("gdown") is not None:
        pytest.skip("gdown is installed")
    text = (
        f"import zipfile\n{where}gdown.download(id='1Rx', output='data.zip', quiet=False)\n"
        "print(zipfile.is_zipfile('data.zip'), gdown.download_folder('https://a.example/b', output='more'))\n"
    )
    done = rehearsed({"main.py": text})
    assert (done.report.ended, done.stdout) == ("finished", "True ['more']\n"), done.report.why


def test_what_kagglehub_would_fetch_is_made_when_it_is_read(rehearsed):
    text = (
        "import kagglehub, os\nimport numpy as np\nfrom PIL import Image\nkagglehub.login()\n"
        "path = kagglehub.dataset_download('owner/some-animals')\n"
        "classes = sorted(os.listdir(path + '/train'))\nfirst = os.path.join(path, 'train', classes[0])\n"
        "print(len(classes), Image.open(os.path.join(first, os.listdir(first)[0])).mode)\n"
        "print(len(np.load(kagglehub.dataset_download('owner/pixels/versions/3', path='x_train.npz'))['data']) > 0)\n"
    )
    done = rehearsed({"main.py": text}, classes=3)
    assert (done.report.ended, done.stdout) == ("finished", "3 RGB\nTrue\n"), done.report.why


def test_what_kagglehub_fetched_before_is_the_users(rehearsed, tmp_path):
    folder = tmp_path / "cache/datasets/owner/animals/versions"
    for version in ("9", "10"):
        (folder / version).mkdir(parents=True)
        (folder / version / "note.txt").write_text(f"the user's, version {version}")
    text = (
        f"import os\nos.environ['KAGGLEHUB_CACHE'] = {str(tmp_path / 'cache')!r}\nimport kagglehub\n"
        "print(open(kagglehub.dataset_download('owner/animals', path='note.txt')).read())\n"
    )
    done = rehearsed({"main.py": text})
    assert (done.report.ended, done.stdout) == ("finished", "the user's, version 10\n"), done.report.why
    assert not done.standins("data")
