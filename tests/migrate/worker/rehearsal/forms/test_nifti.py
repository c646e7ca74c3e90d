"""Volumes that stand in for scans of heads."""

from __future__ import annotations

import gzip
import struct

import numpy as np
import pytest

from headrace.migrate.worker.rehearsal.forms.nifti import ENDINGS, volume

READS = """
import gzip
for name in ("scans/one.nii", "scans/two.nii.gz"):
    data = (gzip.open if name.endswith("gz") else open)(name, "rb").read()
    print(data[344:347].decode(), len(data))
"""


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_volume_is_what_its_header_says(ending: str) -> None:
    data = volume(f"one{ending}")
    data = gzip.decompress(data) if ending.endswith(".gz") else data
    size, shape, kind = (
        struct.unpack_from("<i", data)[0],
        struct.unpack_from("<8h", data, 40),
        struct.unpack_from("<2h", data, 70),
    )
    (offset,) = struct.unpack_from("<f", data, 108)
    assert (size, shape[0], kind, data[344:348]) == (348, 3, (16, 32), b"n+1\0")
    values = np.frombuffer(data[int(offset) :], "<f4").reshape(shape[1:4], order="F")
    assert values[0, 0, 0] == 0
    assert values[45, 54, 45] > 0
    assert not np.array_equal(data, volume(f"other{ending}"))


@pytest.mark.parametrize("ending", ENDINGS)
def test_the_library_reads_it(tmp_path, ending: str) -> None:
    nibabel = pytest.importorskip("nibabel")
    (tmp_path / f"one{ending}").write_bytes(volume(f"one{ending}"))
    image = nibabel.load(tmp_path / f"one{ending}")
    assert image.shape == (91, 109, 91)
    assert image.get_fdata().max() > 500


def test_scans_that_are_not_here_are_made(rehearsed) -> None:
    done = rehearsed({"main.py": READS})
    assert done.stdout.split() == ["n+1", str(352 + 91 * 109 * 91 * 4)] * 2
