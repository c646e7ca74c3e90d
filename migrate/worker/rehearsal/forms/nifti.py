"""Volumes that are not here, as scanners of heads give them: NIfTI-1 files, which need no library to be written.

The header is that of nifti1.h (https://nifti.nimh.nih.gov/pub/dist/src/niftilib/nifti1.h).
"""

from __future__ import annotations

import gzip
import struct
import zlib

import numpy as np

ENDINGS = (".nii", ".nii.gz")
_SHAPE = 91, 109, 91
"""That of the MNI152 template at 2 mm, to which heads are brought."""
_HEADER, _FLOAT32 = 352, 16


def volume(path: str) -> bytes:
    """A bright head in the dark, another one for each name, float32."""
    draw = np.random.default_rng(zlib.crc32(path.encode()))
    axes = np.ogrid[tuple(slice(-1, 1, size * 1j) for size in _SHAPE)]  # type: ignore[misc]
    inside = sum((axis / draw.uniform(0.7, 0.9)) ** 2 for axis in axes) < 1
    values = np.where(inside, draw.normal(700, 100, _SHAPE), 0).clip(0).astype("<f4")
    header = bytearray(_HEADER)
    struct.pack_into("<i", header, 0, 348)
    struct.pack_into("<8h", header, 40, 3, *_SHAPE, 1, 1, 1, 1)
    struct.pack_into("<2h", header, 70, _FLOAT32, 32)
    struct.pack_into("<8f", header, 76, 1, 2, 2, 2, 0, 0, 0, 0)
    struct.pack_into("<3f", header, 108, _HEADER, 1, 0)
    struct.pack_into("<2h", header, 252, 0, 1)
    struct.pack_into("<12f", header, 280, 2, 0, 0, -90, 0, 2, 0, -126, 0, 0, 2, -72)
    header[344:348] = b"n+1\0"
    made = bytes(header) + values.tobytes(order="F")
    return gzip.compress(made, 1) if path.endswith(".gz") else made
