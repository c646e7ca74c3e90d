"""The size of a usual JPEG from its header, in a tenth of the time that Pillow takes, all of it with the interpreter held.

Only a file that Pillow is sure to open, as a single picture of that size in "RGB" or "L", is called usual: every segment that
Pillow's JpegImagePlugin interprets is whole and understood here. Whatever else there is, Pillow looks at.
"""

from __future__ import annotations

from typing import NamedTuple

_SOF0, _DHT, _SOS, _DQT, _DRI, _COM, _APP0 = 0xC0, 0xC4, 0xDA, 0xDB, 0xDD, 0xFE, 0xE0
_SKIPPED = frozenset((_DHT, _DRI, _COM))
_MOST_SEGMENTS = 1_000  # a color profile may take 255
_TABLE_BYTES = 65  # a quantization table of 8 bits, with its number
_XMP = b"http://ns.adobe.com/xap/1.0/\0"
# What the samplings of 4:4:4, 4:2:2 and 4:2:0 are: of luma; those of chroma are 1x1.
_LUMA, _CHROMA = frozenset((0x11, 0x21, 0x22)), 0x11


class JpegHeader(NamedTuple):
    """A baseline JPEG with one scan of all its components: one of gray, or three with one of the usual samplings.

    EXIF or XMP data may say that it lies on its side.
    """

    height: int
    width: int
    components: int
    may_lie: bool


def usual_header(data: bytes) -> JpegHeader | None:
    """The header of a usual JPEG; None for anything else, of which nothing else is said."""
    if data[:2] != b"\xff\xd8":
        return None
    at, end, frame = 2, len(data), b""
    has_exif = has_xmp = has_density = False
    for _ in range(_MOST_SEGMENTS):
        if at + 4 > end or data[at] != 0xFF:
            return None
        marker, size = data[at + 1], (data[at + 2] << 8) + data[at + 3]
        begin, at = at + 4, at + 2 + size
        if size < 2 or at > end:
            return None
        if marker == _SOS:
            usual = frame and data[begin] == frame[5] and (has_density or not has_exif)
            return _described(frame, has_exif or has_xmp) if usual else None
        if marker in _SKIPPED:
            continue
        if marker == _DQT:
            if (at - begin) % _TABLE_BYTES or any(data[table] >> 4 for table in range(begin, at, _TABLE_BYTES)):
                return None
        elif marker == _SOF0:
            if frame:
                return None
            frame = data[begin:at]
            if not _is_usual(frame):
                return None
        elif marker >> 4 == _APP0 >> 4:
            segment = data[begin:at]
            if not _is_plain(segment):
                return None
            if segment.startswith(b"JFIF") and marker == _APP0:
                has_density = segment[7] in (1, 2)
            # Pillow looks into EXIF data for the density where JFIF does not say it, and rejects some that are damaged.
            has_exif = has_exif or (marker == _APP0 + 1 and segment.startswith(b"Exif"))
            has_xmp = has_xmp or (marker == _APP0 + 1 and segment.startswith(_XMP))
        else:
            return None
    return None


def _is_usual(frame: bytes) -> bool:
    """Of 8 bits, with a size, and with one gray component or three that are sampled as usual."""
    if len(frame) < 6 or frame[0] != 8 or len(frame) != 6 + 3 * frame[5]:
        return False
    if not (frame[1] or frame[2]) or not (frame[3] or frame[4]):
        return False
    return frame[5] == 1 or (frame[5] == 3 and frame[7] in _LUMA and frame[10] == frame[13] == _CHROMA)


def _is_plain(segment: bytes) -> bool:
    """Whether Pillow takes an application's segment as it is, and does not make several pictures of the file."""
    if segment.startswith(b"JFIF"):
        return len(segment) >= 12
    if segment.startswith(b"ICC_PROFILE"):
        return len(segment) >= 14
    if segment.startswith(b"Adobe"):
        return len(segment) >= 12
    return not segment.startswith((b"MPF", b"Photoshop"))


def _described(frame: bytes, may_lie: bool) -> JpegHeader:
    return JpegHeader((frame[1] << 8) + frame[2], (frame[3] << 8) + frame[4], frame[5], may_lie)
