"""JPEG in, the five best classes out: a plain PyTorch service on the GPU beside Headrace's on the same GPU.

First in this process, without HTTP: what decoding and the model allow. Then as services under the load generator of
`headrace bench`, each stopped while another is measured; where a package that serving needs is missing, that part is skipped
and says which. Photos for the load are those of `headrace bench` without images; the answers are compared on textures, which
the model tells apart.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from gpu.bench import Subject, described
from gpu.packages import FASTER, SERVING, lacking
from gpu.pixels import levels, of_pixels, preprocessing

if TYPE_CHECKING:
    from gpu.bench import Bench

_TEXTURES = 48


def section(bench: Bench, name: str) -> None:
    found = bench.found[name]
    if lacking({"PIL": "pillow"}):
        found["status"] = "skipped: Pillow is not installed, and nothing decodes JPEG without it"
        bench.say(found["status"])
        return
    from gpu.pipeline import in_process
    from gpu.services import over_http

    subject = bench.subject or _planned(bench)
    found["rows"] = "uint8 pixels"
    try:
        subject = of_pixels(bench, subject)
    except Exception as error:  # noqa: BLE001 - it is a failure, and what was planned before is served all the same
        found["rows"] = f"float32, since for uint8 pixels it failed: {described(error)}"
        bench.failed(f"served from pixels: {described(error)}")
    photos, textures, classes = _images(bench)
    found["model"] = subject.name
    found["plan"] = {str(batch): str(choice) for batch, choice in subject.plan.choices.items()}
    found["images"] = f"{len(photos)} synthetic JPEG photos of 500x375, answers on {len(textures)} textures of 256x256"
    found["decoding"] = "Pillow alone" if lacking(FASTER) else "libjpeg-turbo and a SIMD resize"
    found["in_process"] = {"measured": "in one process, without HTTP: encoded images in, the five best classes out"}
    try:
        found["in_process"] |= in_process(bench, subject, preprocessing(bench), photos, textures)
    except Exception as error:  # noqa: BLE001 - the services are measured all the same
        found["in_process"]["status"] = f"failed: {described(error)}"
        bench.failed(f"served in process: {found['in_process']['status']}")
    found["http"] = {"measured": "services over HTTP on this machine, which they share with the load generator"}
    if missing := lacking(SERVING):
        found["http"]["status"] = f"skipped: {', '.join(missing)} not installed; --packages DIR brings them"
        bench.say(f"served over HTTP is {found['http']['status']}")
        return
    over_http(bench, subject, preprocessing(bench), photos, textures, classes, found["http"])


def _planned(bench: Bench) -> Subject:
    """ResNet-50 and its plan, where its own section did not leave them."""
    from gpu.throughput import prepared

    name = "resnet50"
    if name in bench.found["models"]:
        raise RuntimeError(f"{name} was not planned, so there is nothing to serve")
    contenders, _, _ = prepared(bench, name)
    contenders.plan(bench.here / 2)
    contenders.close()
    assert contenders.planned is not None
    signature, plan = contenders.planned
    return Subject(name=name, model=contenders.model, signature=signature, plan=plan, directory=contenders.directory)


def _images(bench: Bench) -> tuple[list[Path], list[Path], list[int]]:
    """Photos, textures as JPEG, and the textures' classes. JPEG cuts off what is darker or brighter than it can say, so fewer
    of these textures are recognised than of those that the model was fitted to; the answers are compared with each other."""
    import torch
    from models import textures
    from PIL import Image

    from headrace.serving.bench.images import write_synthetic_photos

    photos = write_synthetic_photos(bench.folder / "photos", 4 if bench.quick else 32)
    rows, classes = textures(_TEXTURES, bench.size, seed=3)
    # A frame around the middle that is cut out, so that pixels are not resized.
    frame = (bench.size * 8 // 7 - bench.size) // 2
    rows = torch.nn.functional.pad(rows, (frame,) * 4, mode="replicate")
    folder = bench.folder / "textures"
    folder.mkdir()
    paths = []
    for number, pixels in enumerate(levels(rows).numpy()):
        paths.append(folder / f"{number:03d}.jpg")
        Image.fromarray(pixels).save(paths[-1], quality=95)
    return photos, paths, classes.tolist()
