"""Sources of every kind with the same images, and jobs over them."""

import io
import tarfile
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from headrace.serving.offline.config import ClassifyConfig
from headrace.serving.offline.run import classify


@pytest.fixture(scope="session")
def jpegs(make_photo):
    """Name -> bytes, in the order of the names; one of them is no image."""
    images = {
        f"{letter}/{number:03}.jpg": make_photo(17 * number + ord(letter), kind="JPEG")
        for letter in "ab"
        for number in range(20)
    }
    images["b/broken.jpg"] = b"\xff\xd8\xff this is no image"
    return images


@pytest.fixture
def folder(tmp_path, jpegs):
    root = tmp_path / "photos"
    for name, data in jpegs.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(data)
    return root


def _tar(path: Path, members: dict[str, bytes]) -> Path:
    mode = "w:gz" if path.name.endswith("gz") else "w"
    with tarfile.open(path, mode) as archive:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return path


def _parquet(path: Path, column: pa.Array, /, name: str = "image", **more: pa.Array) -> Path:
    pq.write_table(pa.table({**more, name: column}), path)
    return path


def _rows(out: Path) -> list[dict]:
    """Every row of a job, in order."""
    files = sorted(out.glob("part-*.parquet"))
    return ds.dataset([str(file) for file in files]).to_table().to_pylist() if files else []


@pytest.fixture(scope="session")
def make_tar():
    return _tar


@pytest.fixture(scope="session")
def make_parquet():
    return _parquet


@pytest.fixture(scope="session")
def rows_of():
    return _rows


@pytest.fixture
def job(models, tmp_path):
    """Run a job over a source: job(source, top_k=2, ...) gives its summary and its rows."""

    def run(source, *, out: Path = tmp_path / "out", stopped=lambda: False, **options):
        options = {"model": models / "tiny", "batch": 8, "threads": 1, "decode_threads": 2, "shard_images": 16} | options
        summary = classify(ClassifyConfig(source=str(source), out=out, **options), stopped=stopped)
        return summary, _rows(out)

    return run
