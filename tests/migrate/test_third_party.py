"""Published packages as they are: the migrator runs over their sources, loses no byte, and has nothing to do a second time.

They come from the package index once and stay in build/third-party; without the index these tests are skipped.
"""

from __future__ import annotations

import ast
import contextlib
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from headrace.errors import MigrateError
from headrace.migrate.resolving.resolve import resolve
from headrace.migrate.rewriting.rewrite import Change, rewrite
from headrace.migrate.survey.survey import survey

CACHE = Path(__file__).resolve().parents[2] / "build/third-party"
EVALUATION = ["PS201", "PS202", "PS203"]
WHEELS = [
    "timm==1.0.31",
    "vit-pytorch==1.26.11",
    "fastai==2.8.12",
    "mmpretrain==1.2.0",
    "classy-vision==0.7.0",
    "lightning-bolts==0.7.0",
    "geffnet==1.0.2",
    "pytorch-metric-learning==2.9.0",
]
# The laws hold for the smaller ones here, and for whole scripts in test_corpus.py; these take up to minutes.
LARGE = [
    "classy-vision==0.7.0",
    "timm==1.0.31",
    "vit-pytorch==1.26.11",
    "torchreid==0.2.5",
    "fastai==2.8.12",
    "mmpretrain==1.2.0",
    "pytorch-metric-learning==2.9.0",
    "lightning-bolts==0.7.0",
]
ARCHIVES = ["efficientnet-pytorch==0.7.1", "torchreid==0.2.5"]
"""Published only as source archives."""
FACTORIES = {
    "efficientnet-pytorch==0.7.1": {"EfficientNet"},
    "vit-pytorch==1.26.11": {"ViT", "SimpleViT", "CvT", "MobileViT"},
    "geffnet==1.0.2": {"mnasnet_100", "mobilenetv3_rw", "efficientnet_b0", "tf_efficientnet_b0"},
    "torchreid==0.2.5": {"resnet50", "osnet_x1_0", "mobilenetv2_x1_0", "densenet121"},
}
_unreachable: list[str] = []


def fetched(package: str) -> Path:
    """The unpacked package, from the index or from an earlier run."""
    target = CACHE / package
    if target.exists():
        return target
    if _unreachable:
        pytest.skip(_unreachable[0])
    download = CACHE / f"{package}.part"
    shutil.rmtree(download, ignore_errors=True)
    form = ["--only-binary", ":all:"] if package in WHEELS else ["--no-binary", ":all:", "--no-build-isolation"]
    command = [
        "pip",
        "download",
        "--quiet",
        "--no-deps",
        "--retries",
        "1",
        "--timeout",
        "10",
        *form,
        "-d",
        str(download),
        package,
    ]
    done = subprocess.run([sys.executable, "-m", *command], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        said = [line for line in done.stderr.splitlines() if line.startswith("ERROR")] or [f"exit status {done.returncode}"]
        reason = f"the package index gave no {package}: {said[-1]}"
        if any(word in done.stderr for word in ("NewConnectionError", "ConnectTimeout", "from versions: none")):
            _unreachable.append(reason)
        pytest.skip(reason)
    (archive,) = download.iterdir()
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as wheel:
            wheel.extractall(download / "files")
    else:
        with tarfile.open(archive) as source:
            filtered = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}  # Python 3.11 before its fourth release
            source.extractall(download / "files", **filtered)
    (download / "files").rename(target)
    shutil.rmtree(download)
    return target


@pytest.mark.parametrize(
    "package", [pytest.param(package, marks=pytest.mark.slow) if package in LARGE else package for package in WHEELS + ARCHIVES]
)
def test_published_sources_keep_the_laws(package: str, tmp_path: Path, taken_back: Callable[[Change], bytes]) -> None:
    root = fetched(package)
    surveyed = survey(root)
    assert FACTORIES.get(package, set()) <= {factory.name for factory in surveyed.factories}
    with contextlib.suppress(MigrateError):  # a library has no script of its own; that is an answer
        resolve(surveyed)
    for change in rewrite(surveyed, unsafe=True, select=EVALUATION):
        assert change.before == (root / change.path).read_bytes()
        assert taken_back(change).replace(b".forward(", b"(") == change.before.replace(b".forward(", b"(")
    changed = [change for change in rewrite(surveyed, unsafe=True) if change.changed]
    if not changed:
        return
    for file in surveyed.files:
        (tmp_path / file.path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file.path).write_bytes(file.data)
    for change in changed:
        ast.parse(change.after)
        (tmp_path / change.path).write_bytes(change.after)
    assert [change.path for change in rewrite(survey(tmp_path), unsafe=True) if change.changed] == []
