"""Image files with damage in their heads, lengths, sizes, EXIF data and pixels, sent in every way in which images are taken.

What Pillow says of the same file by itself is what the server must say: the right labels, or 400.
"""

from __future__ import annotations

import json
import struct
import zlib

from case import Answer, Check, HttpCase, ask
from drawing import Draw
from oracle import strict_json
from world import World, images, wrong_predictions

WEIGHT = 20

_IMAGES = images()
_WORDS = (
    b"\xff\xd8", b"\xff\xd9", b"\xff\xda", b"\xff\xc0", b"\xff\xc2", b"\xff\xdb", b"\xff\xe1", b"Exif\0\0", b"II*\0",
    b"MM\0*", b"\x01\x12",
    b"\xff\x01", b"IHDR", b"IDAT", b"PLTE", b"tRNS", b"IEND", b"acTL", b"fcTL", b"iCCP", b"eXIf", b"RIFF", b"WEBP", b"VP8 ",
    b"VP8L", b"VP8X",
    b"ANIM", b"ANMF", b"BM", b"\x28\0\0\0", b"GIF87a", b"GIF89a", b"\x21\xf9", b"\x21\xff", b"\x2c", b"\x3b", b"\xff\xff",
    b"\0\0\0\0", b"8BIM",
)  # fmt: skip
# JPEGs go through libjpeg-turbo and SIMD resizing: 8-bit values within 2 of Pillow's, which weights of 0.05 and standard
# deviations of 0.2 make so much of a probability at most.
_TOLERANCE = {True: 0.08, False: 1e-3}


def case(draw: Draw, world: World) -> HttpCase:
    """One image, whole or damaged."""
    image = draw.pick(_IMAGES)
    if draw.chance(0.8):
        image = _damaged(draw, image)
    scores = world.of_image(image)
    tolerance = _TOLERANCE[image.startswith(b"\xff\xd8")]
    statuses = frozenset({400} if scores is None else {200})

    def predicted(answer: Answer) -> str | None:
        return None if scores is None else wrong_predictions(strict_json(answer.body), scores, 5, tolerance)

    way = draw.between(0, 5)
    if way <= 2:
        kind = draw.pick(({}, {"Content-Type": "image/jpeg"}, {"Content-Type": draw.pick(("text/html", "image/*", ";;", ""))}))
        return ask(f"/v1/classify/{draw.pick(('tiny', 'tiny_classify'))}", image, kind, statuses=statuses, checks=(predicted,))
    if way == 3:
        return _form(draw, image, statuses, predicted)
    if way == 4:
        return ask(
            f"/v2/models/{draw.pick(('tiny_classify', 'tiny_decode'))}/infer",
            image,
            {"Inference-Header-Content-Length": 0},
            statuses=statuses,
        )
    body = struct.pack("<I", len(image)) + image
    tensor = {"name": "IMAGE", "datatype": "BYTES", "shape": [1, 1], "parameters": {"binary_data_size": len(body)}}
    text = json.dumps({"inputs": [tensor]}).encode()
    return ask("/v2/models/tiny_classify/infer", text + body, {"Inference-Header-Content-Length": len(text)}, statuses=statuses)


def _form(draw: Draw, image: bytes, statuses: frozenset[int], predicted: Check) -> HttpCase:
    boundary = draw.pick(("B", "----WebKitFormBoundary7MA4", "'()+_,-./:=? x", "B" * 70))
    kind = {"Content-Type": f'multipart/form-data; boundary="{boundary}"'}
    mark = b"--" + boundary.encode()
    head = b'\r\nContent-Disposition: form-data; name="file"; filename="x.jpg"\r\nContent-Type: image/jpeg\r\n\r\n'
    body = mark + head + image + b"\r\n" + mark + b"--\r\n"
    if mark in image or b"\r\n--" in image:  # damage has made a boundary of it
        return ask("/v1/classify/tiny", body, kind)
    if draw.chance(0.4):
        return ask("/v1/classify/tiny", body, kind, statuses=statuses, checks=(predicted,))
    words = (
        mark,
        mark + b"--",
        b"\r\n\r\n",
        b"\r\n",
        b"filename=",
        b"filename*=UTF-8''%ff",
        b'name="',
        b"Content-Disposition:",
        b"Content-Length: 5",
        b";",
        b'"',
    )
    body = draw.damage(body, words, within=len(mark) + len(head) + 20)
    if draw.chance(0.2):
        given = draw.pick(
            (
                "multipart/form-data",
                "multipart/form-data; boundary=",
                "multipart/mixed; boundary=B",
                "multipart/form-data; boundary=\xff",
                "MULTIPART/FORM-DATA;BOUNDARY=B",
            )
        )
        kind = {"Content-Type": given}
    return ask("/v1/classify/tiny", body, kind)


def _damaged(draw: Draw, image: bytes) -> bytes:
    kind = draw.between(0, 6)
    if kind == 0:
        return draw.damage(image, _WORDS, within=64)
    if kind == 1:
        return draw.damage(image, _WORDS)
    if kind == 2:
        return image[: draw.between(0, len(image))]
    if kind == 3:  # the head of one and the rest of another
        other = draw.pick(_IMAGES)
        return image[: draw.between(0, len(image))] + other[draw.between(0, len(other)) :]
    if kind == 4:
        return _other_size(draw, image)
    if kind == 5 and image.startswith(b"\x89PNG"):
        return _chunks(draw, image)
    if kind == 5 and image.startswith(b"\xff\xd8"):
        return image[:2] + _exif(draw) + image[2:]
    return image + draw.pick((draw.bytes(100), draw.pick(_IMAGES), b"\0" * 1000))


def _other_size(draw: Draw, image: bytes) -> bytes:
    """Width or height as they are not, where each format keeps them."""
    size = draw.pick((0, 1, 46, 48, 1000, 1001, 30000, 65535, 2**31 - 1, 2**32 - 1))
    changed = bytearray(image)
    if image.startswith(b"\x89PNG"):
        at = draw.pick((16, 20))
        changed[at : at + 4] = struct.pack(">I", size)
        if draw.chance(0.9):
            changed[29:33] = struct.pack(">I", zlib.crc32(changed[12:29]))
    elif image.startswith(b"BM"):
        at = draw.pick((18, 22))
        changed[at : at + 4] = struct.pack("<I", size)
    elif image.startswith(b"GIF"):
        at = draw.pick((6, 8))
        changed[at : at + 2] = struct.pack("<H", size % 65536)
    elif image.startswith(b"\xff\xd8"):
        found = max(image.find(b"\xff\xc0"), image.find(b"\xff\xc2"))
        at = found + draw.pick((5, 7))
        changed[at : at + 2] = struct.pack(">H", size % 65536)
    else:
        at = draw.pick((24, 26, 27, 4, 16))
        changed[at : at + 3] = struct.pack("<I", size)[:3]
    return bytes(changed)


def _chunks(draw: Draw, image: bytes) -> bytes:
    """A PNG whose chunks come twice, in another order, with other contents or not at all; their checksums are right."""
    chunks, at = [], 8
    while at + 12 <= len(image):
        size = int.from_bytes(image[at : at + 4], "big")
        chunks.append((image[at + 4 : at + 8], image[at + 8 : at + 8 + size]))
        at += 12 + size
    for _ in range(draw.between(1, 3)):
        number = draw.random.randrange(len(chunks))
        name, data = chunks[number]
        kind = draw.between(0, 4)
        if kind == 0 and len(chunks) > 1:
            del chunks[number]
        elif kind == 1:
            chunks.insert(number, chunks[number])
        elif kind == 2:
            chunks[number] = (name, draw.damage(data))
        elif kind == 3:
            chunks[number] = (
                draw.pick((b"IHDR", b"PLTE", b"IDAT", b"tRNS", b"eXIf", b"iCCP", b"zTXt", b"iTXt", b"acTL", b"fdAT", b"aaaa")),
                data,
            )
        else:
            draw.random.shuffle(chunks)
    parts = [struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data)) for name, data in chunks]
    return image[:8] + b"".join(parts)


def _exif(draw: Draw) -> bytes:
    """An EXIF segment with a directory of its own making."""
    order = draw.pick("<>")
    entries = [
        struct.pack(
            f"{order}HHII",
            draw.pick((0x0112, 0x0112, 0x8769, 0x8825, 0x010E, 0x927C)),
            draw.between(0, 13),
            draw.number() % 2**32,
            draw.pick((0, 1, 6, 8, 9, 26, 2**31)),
        )
        for _ in range(draw.between(0, 5))
    ]
    count = len(entries) if draw.chance(0.7) else draw.pick((0, 1, 65535))
    tiff = {"<": b"II*\0", ">": b"MM\0*"}[order] + struct.pack(f"{order}IH", draw.pick((8, 8, 8, 0, 4, 2**31)), count)
    data = b"Exif\0\0" + tiff + b"".join(entries) + struct.pack(f"{order}I", draw.pick((0, 8, 14)))
    return b"\xff\xe1" + struct.pack(">H", len(data) + 2) + data
