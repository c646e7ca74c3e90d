"""Recover the served preprocessing by running the user's own evaluation transform on probe images, then prove it on fresh ones.

The rule is one for torchvision's classes, hand-written functions and own classes alike: what counts is what the transform
does to images, not how it is written. The user's code runs in the sandbox (`trace_probe`), the fit happens here
(`trace_fit`), and the proof runs the runtime's own preprocessing, in another process, on images the fit has not seen.
"""

from __future__ import annotations

import functools
import io
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from PIL import ExifTags, Image

from ...errors import SandboxError
from ...specs import Preprocessing
from ..reading.recipe import TransformRecipe
from .fit_numbers import Rejected, tolerance
from .sandbox import Sandbox, read_left_arrays, read_left_json
from .trace_fit import Observation, fit, rows
from .trace_probe import NOT_REACHED

# (width, height): landscape, portrait, square, small, large; odd, so that halves and ratios round.
FIT_SIZES = (
    (97, 61), (61, 97), (80, 80), (301, 201), (200, 333), (500, 375), (223, 518), (40, 33), (641, 479), (31, 57),
    # Small ones, cheap, chosen so that for the usual sizes of inputs int(N * a / b) and int(a * (N / b)) part on some of them.
    (107, 97), (56, 77), (79, 94), (39, 78), (44, 55), (69, 71), (79, 46), (69, 54), (87, 116), (88, 55), (105, 60), (116, 82),
    (96, 75), (90, 50),
)  # fmt: skip
PROOF_SIZES = ((375, 500), (129, 77), (255, 257), (333, 250), (47, 90), (612, 409))
_OTHER_SIZES = ((129, 77), (47, 90))
"""Of images whose mode alone is in question."""
MODES: tuple[Literal["RGB", "L"], ...] = ("RGB", "L")
OTHER_MODES = ("RGBA", "P")
DEEP = "I;16"
RARE_MODES = ("LA", DEEP, "CMYK")
"""What Pillow, OpenCV and hand-written loading convert in their own ways, besides."""
_CALLED = {DEEP: "16-bit gray", "LA": "gray transparent (LA)"}
ON_ITS_SIDE = "on_its_side"
LIGHTS = {"dark": (0.1, 0), "bright": (0.1, 229), "faint": (0.05, 120), "black": (0, 0), "white": (0, 255)}
"""What pixels are multiplied by, and what is added: code may brighten what is dark, or leave out what is of one color."""
MARGINS = {"on_black": 0, "on_white": 255}
"""The color of a margin, another on each side: code may crop a digit or a scan to what is not ground."""
_SAID = {
    ON_ITS_SIDE: "an image that lies on its side", **{name: f"a {name} image" for name in LIGHTS},
    "on_black": "an image with a black margin", "on_white": "an image with a white margin",
}  # fmt: skip
_FEW = 3
"""Images of one mode that confirm what is known."""
_LEVELS = 2.1
"""Of 255, by which a resize of floats may differ from one of the image: both round, each in its own way."""
PROBE = Path(__file__).with_name("trace_probe.py")
LIVE_PROBE = ["-P", "-m", "headrace.migrate.worker.live.transform"]
# Written as text because the migrator imports nothing of the runtime; it runs in its own process.
RUNTIME_ROWS = """
import json, sys
from pathlib import Path
import numpy as np
from headrace.runtime.images.preprocessing import image_to_row
request = json.loads(Path(sys.argv[1]).read_text())
rows = {str(i): image_to_row(Path(path).read_bytes(), request["steps"]) for i, path in enumerate(request["probes"])}
np.savez(request["out"], **rows)
"""

_RANDOM = "the transform is random: two runs on one image differ, as training augmentations do"


@dataclass(frozen=True, kw_only=True)
class Probe:
    """One probe image and what the transform did with it; those for the proof are kept from the fit."""

    path: Path
    mode: str
    size: tuple[int, int]
    for_proof: bool
    found: dict[str, Any] = field(default_factory=dict)
    output: np.ndarray | None = None
    pixels: np.ndarray | None = None


@dataclass(frozen=True, kw_only=True)
class Traced:
    """Preprocessings that the transform proved equal to, best first: usually one, but a transform that takes whatever mode
    the caller hands it fits both RGB and L, and the model's channels decide. `why` says why there is none."""

    candidates: tuple[Preprocessing, ...] = ()
    max_abs: float | None = None
    why: str | None = None
    notes: tuple[str, ...] = ()
    source: str = ""
    """Where that is done, if it is another place than the recipe's."""


def trace(recipe: TransformRecipe, sandbox: Sandbox, *, seed: int = 0) -> Traced:
    """Recover the preprocessing of what `recipe` evaluates to. A failure is a value with its reason."""
    probes = _observed(recipe, write_probes(sandbox.readable_folder(), seed), sandbox)
    return Traced(why=probes) if isinstance(probes, str) else _conclude(probes, sandbox, recipe.source_at)


def confirm(recipe: TransformRecipe, read: Traced, sandbox: Sandbox, *, seed: int = 0) -> Traced | None:
    """What of the preprocessings that were found in one way holds for what the recipe does, on a few images.

    None where the recipe does not come to do anything."""
    modes = {made.mode for made in read.candidates}
    few: list[Probe] = []
    for probe in write_probes(sandbox.readable_folder(), seed):
        alike = [other for other in few if other.mode == probe.mode]
        most = _FEW if probe.mode in modes else 1
        apart = any(name in probe.path.name for name in _SAID)
        if probe.for_proof and (len(alike) < most or (alike and apart)):
            few.append(probe)
    probes = _observed(recipe, few, sandbox)
    if probes == _RANDOM:  # whatever was found in another way is not what happens to the model's images
        return Traced(why=_RANDOM)
    if isinstance(probes, str) or all(probe.output is None for probe in probes):
        return None
    holding, notes, worst, why = [], [], 0.0, None
    for candidate in read.candidates:
        try:
            made, difference, remarks = _prove_either(candidate, probes, candidate.mode, sandbox)
        except (Rejected, SandboxError) as error:
            why = str(error)
            continue
        holding.append(made)
        notes += remarks
        worst = max(worst, difference)
    return Traced(candidates=tuple(holding), max_abs=worst if holding else None, why=why, notes=tuple(dict.fromkeys(notes)))


def _observed(recipe: TransformRecipe, probes: list[Probe], sandbox: Sandbox) -> list[Probe] | str:
    """What the recipe does to the probes, or why it does nothing that is always the same."""
    readable, writable = sandbox.readable_folder(), sandbox.writable_folder()
    request = readable / "request.json"
    paths = [str(probe.path) for probe in probes]
    asked = {"recipe": recipe.to_json(), "probes": paths, "alike": _alike(probes), "out": str(writable)}
    request.write_text(json.dumps(asked), encoding="utf-8")
    program = [str(PROBE)] if recipe.live is None else LIVE_PROBE
    done = sandbox.run([*program, str(request)], writable)
    answer_file = writable / "trace.json"
    if not done.ok or not os.path.lexists(answer_file):
        return f"the transform could not be run: {done.why or 'it left no result'}"
    try:
        answer = _answer(answer_file, len(probes))
        arrays = read_left_arrays(writable / "trace.npz") if answer["ok"] else {}
    except SandboxError as error:
        return f"the transform left no result that can be read: {error}"
    if not answer["ok"]:
        what = "the transform " if answer.get("made") is True else "the code that makes the transform failed: "
        return f"{what if recipe.live is None else ''}{answer['error']} ({answer['where']})"
    if any(found.get("random") for found in answer["probes"]):
        return _RANDOM
    return [
        replace(probe, found=found, output=arrays.get(f"output{index}"), pixels=arrays.get(f"pixels{index}"))
        for index, (probe, found) in enumerate(zip(probes, answer["probes"], strict=True))
    ]


def _alike(probes: Sequence[Probe]) -> list[int | None]:
    """For each probe the first one that says what becomes of its kind: all gray ones may be turned to color, or fail."""
    gray = [index for index, probe in enumerate(probes) if probe.mode == "L" and not probe.for_proof]
    return [gray[0] if index in gray[1:] else None for index in range(len(probes))]


def _answer(path: Path, probes: int) -> dict[str, Any]:
    """What the probe found, in the form in which it writes that. Raises SandboxError: the user's code can write there too."""
    answer = read_left_json(path)
    if isinstance(answer, dict) and isinstance(answer.get("ok"), bool):
        found = answer.get("probes")
        if not answer["ok"] and isinstance(answer.get("error"), str) and isinstance(answer.get("where"), str):
            return answer
        if answer["ok"] and isinstance(found, list) and len(found) == probes and all(isinstance(one, dict) for one in found):
            return answer
    raise SandboxError(f"{path.name} is not what the probe writes")


def _conclude(probes: list[Probe], sandbox: Sandbox, source: str) -> Traced:
    candidates: list[Preprocessing] = []
    reasons, notes, worst = [], [], 0.0
    for mode in MODES:
        try:
            made = _fit_mode(probes, mode, source)
            if any(replace(known, upright=False) == made for known in candidates):
                continue
            made, difference, remarks = _prove_either(made, probes, mode, sandbox)
        except Rejected as rejection:
            reasons.append(str(rejection))
            continue
        except SandboxError as error:
            return Traced(why=str(error))
        candidates.append(made)
        worst = max(worst, difference)
        notes += remarks
    if not candidates:
        return Traced(why=reasons[0])
    return Traced(candidates=tuple(candidates), max_abs=worst, notes=tuple(dict.fromkeys(notes)))


def _fit_mode(probes: list[Probe], mode: Literal["RGB", "L"], source: str) -> Preprocessing:
    """Fit on the probes that reach the transform in `mode`, whatever mode they end in. Raises Rejected."""
    mine = [probe for probe in probes if probe.mode == mode and not probe.for_proof]
    followed = [probe for probe in mine if probe.found.get("followed")]
    for probe in followed:
        if any(op.get("matrix") for op in probe.found["ops"]):
            raise Rejected("it converts colors with a matrix of its own")
    if len(followed) < 4:
        if any(probe.found.get("mode") for probe in mine):
            raise Rejected("it rebuilds or pads the image outside of Pillow's resize and crop, so its steps cannot be followed")
        errors = [probe.found["error"] for probe in mine if not probe.found["ok"]]
        raise Rejected(f"it fails on {mode} images: {errors[0]}" if errors else "it reads images without Pillow")
    ends = {probe.found["mode"] for probe in followed}
    if len(ends) != 1:
        raise Rejected("the mode of its result differs from image to image")
    if mode == "L" and ends == {"RGB"}:  # it converts by itself, so the color probes say all, and gray ones less
        raise Rejected("it converts gray images to color, yet does not work on color images")
    observations = [
        Observation(size=probe.size, ops=probe.found["ops"], pixels=probe.pixels, output=probe.output)
        for probe in followed
        if probe.pixels is not None and probe.output is not None
    ]
    return fit(observations, mode, source=source)


def _prove_either(
    made: Preprocessing, probes: list[Probe], mode: str, sandbox: Sandbox
) -> tuple[Preprocessing, float, list[str]]:
    """As `_prove`, with `upright` where only an image that lies on its side says that the transform stands images upright, and
    with the high byte of 16 bits where those of gray images say that it takes that."""
    try:
        found = (made, *_prove(made, probes, mode, sandbox))
    except Rejected as rejection:
        if _SAID[ON_ITS_SIDE] not in str(rejection):  # the last probes: all others agree
            raise
        made = replace(made, upright=True)
        found = (made, *_prove(made, probes, mode, sandbox))
    if any(_CALLED[DEEP] in remark for remark in found[2]):
        high = replace(made, deep="high-byte")
        other = (high, *_prove(high, probes, mode, sandbox))
        found = other if not any(_CALLED[DEEP] in remark for remark in other[2]) else found
    return found


def _prove(made: Preprocessing, probes: list[Probe], mode: str, sandbox: Sandbox) -> tuple[float, list[str]]:
    """The largest difference to the runtime's rows, over all probes of that mode. Raises Rejected when it is a real one."""
    usable = [(probe, probe.output) for probe in probes if probe.output is not None]
    readable, writable = sandbox.readable_folder(), sandbox.writable_folder()
    request, out = readable / "proof.json", writable / "proof.npz"
    paths = [str(probe.path) for probe, _ in usable]
    request.write_text(json.dumps({"steps": made.to_json()["steps"], "probes": paths, "out": str(out)}), encoding="utf-8")
    done = sandbox.run(["-P", "-c", RUNTIME_ROWS, str(request)], writable)
    if not done.ok:
        raise SandboxError(f"the runtime's preprocessing failed on the probe images: {done.why}", output=done.stderr)
    worst, proofs, remarks, others = 0.0, 0, [], []
    served = read_left_arrays(out)
    for index, (probe, output) in enumerate(usable):
        try:
            wanted = rows(output)
        except Rejected:
            if probe.mode == mode:
                raise
            wanted = output  # four channels of an RGBA image, say: a difference like others
        got = served[str(index)]
        difference = float(np.abs(wanted - got).max()) if wanted.shape == got.shape else float("inf")
        near = _LEVELS * max(abs(made.scale / std) for std in made.std) if _in_floats(probe) else 0.0
        agrees = difference <= tolerance(wanted) + near
        if probe.mode == mode:
            if not agrees:
                raise Rejected(f"what it does to {_said_of(probe)} could not be reproduced exactly (off by {difference:.3g})")
            worst, proofs = max(worst, difference), proofs + probe.for_proof
        elif made.mode == "L" and probe.mode == "RGB" and wanted.shape == got.shape and not agrees:
            raise Rejected("it makes gray of colors in a way of its own, which the served preprocessing has no step for")
        elif not agrees and probe.mode in (*OTHER_MODES, *RARE_MODES):
            others.append(_CALLED.get(probe.mode, probe.mode))
    if others:
        *more, last = dict.fromkeys(others)
        called = f"{', '.join(more)} and {last}" if more else last
        remarks.append(f"{called} images are converted to the model's channels before any other step, unlike in the transform")
    left = [_said_of(probe) for probe in probes if probe.mode == mode and probe.found.get("error") == NOT_REACHED]
    if left:
        several = f" and {len(left) - 1} more of the probes" if len(left) > 1 else ""
        remarks.append(
            f"the script does not bring {left[0]}{several} to its model, but leaves it out or says something else of it; the "
            "service answers it as any other"
        )
    if any(_in_floats(probe) for probe, _ in usable):
        remarks.append(
            f"it resizes in floats, and the service resizes images: values differ by at most {worst:.2g}, less than {_LEVELS} "
            "of the 255 levels of a pixel"
        )
    if proofs < 3:
        raise Rejected(f"it fails on most {mode} images, so nothing could be proved")
    return worst, remarks


def _said_of(probe: Probe) -> str:
    name = probe.path.stem.split("_", 2)[-1]
    return _SAID.get(name, f"an image of {name} pixels")


def _in_floats(probe: Probe) -> bool:
    return any(op.get("floats") for op in probe.found.get("ops", ()))


def row_shape(made: Preprocessing, image: tuple[int, int] | None = None) -> tuple[int, int, int] | None:
    """The (channels, height, width) of every row; None where it follows from the image, which no batch can hold.

    `image` is the (height, width) that all images have, where that is known.
    """
    size = made.row_size
    if size is None and image is not None:
        size = image
        for step in made.geometry:
            size = step.output_size(*size)
    return (len(made.row_mode), *size) if size is not None else None


def write_probes(folder: Path, seed: int) -> list[Probe]:
    """PNG files of smooth shapes under noise; the last of those to prove with lie on their side, as their EXIF data say."""
    probes = []
    for probe, data in _probe_files(seed):
        probes.append(replace(probe, path=folder / probe.path))
        probes[-1].path.write_bytes(data)
    return probes


@functools.cache  # they take longer than a transform runs, and most repositories have several
def _probe_files(seed: int) -> list[tuple[Probe, bytes]]:
    generator, apart = np.random.default_rng(seed), np.random.default_rng((seed, 1))
    made = []

    def make(name: str, mode: str, size: tuple[int, int], *, for_proof: bool, **options: Any) -> None:
        file = io.BytesIO()
        form = "JPEG" if mode == "CMYK" else "PNG"
        options["compress_level"] = 0  # noise becomes no smaller, and to try takes longer than all the rest
        image = probe_image(apart if mode in RARE_MODES or name in (*LIGHTS, *MARGINS) else generator, *size, mode)
        if name in LIGHTS:
            factor, light = LIGHTS[name]
            image = image.point([round(factor * value) + light for value in range(256)] * len(image.getbands()))
        if name in MARGINS:
            image = _with_margin(image, MARGINS[name])
        image.save(file, form, **options)
        path = Path(f"{'proof' if for_proof else 'fit'}_{mode.replace(';', '')}_{name}.{form.lower()}")
        made.append((Probe(path=path, mode=mode, size=size[::-1], for_proof=for_proof), file.getvalue()))

    for for_proof, sizes in ((False, FIT_SIZES), (True, PROOF_SIZES)):
        for mode in (*MODES, *OTHER_MODES, *RARE_MODES) if for_proof else MODES:
            for size in sizes if mode in MODES else _OTHER_SIZES:
                make(f"{size[0]}x{size[1]}", mode, size, for_proof=for_proof)
    for mode in MODES:
        for name in (*LIGHTS, *MARGINS):
            make(name, mode, PROOF_SIZES[1], for_proof=True)
    exif = Image.Exif()
    exif[ExifTags.Base.Orientation] = 6
    for mode in MODES:
        make(ON_ITS_SIDE, mode, PROOF_SIZES[0], for_proof=True, exif=exif)
    return made


def _with_margin(image: Image.Image, light: int) -> Image.Image:
    width, height = image.size
    box = (width // 5, height // 3, width * 9 // 10, height * 3 // 4)
    ground = Image.new(image.mode, image.size, (light,) * len(image.getbands()))
    ground.paste(image.crop(box), box)
    return ground


def probe_image(generator: np.random.Generator, width: int, height: int, mode: str) -> Image.Image:
    """Something between a photo and noise, so that every filter, offset and channel order leaves its own mark."""
    across, down = generator.uniform(3, 40, (2, 4)).astype(np.float32)
    x = np.arange(width, dtype=np.float32)[None, :, None] / across
    y = np.arange(height, dtype=np.float32)[:, None, None] / down + np.arange(4, dtype=np.float32)
    values = 128 + 25 * generator.standard_normal((height, width, 4), dtype=np.float32)
    values += 90 * (np.sin(x) * np.cos(y) + np.cos(x) * np.sin(y))  # the sine of x + y, of as many numbers as there are edges
    array = np.clip(values, 0, 255).astype(np.uint8)
    if mode == "L":
        return Image.fromarray(array[:, :, 0])
    if mode == DEEP:
        # Of no whole range and with low bytes of their own, so that a high byte is neither a stretched nor a rounded value.
        return Image.fromarray(array[:, :, 0].astype(np.uint16) * 173 + array[:, :, 1] % 173)
    if mode in ("LA", "CMYK"):
        return Image.fromarray(array, "RGBA" if mode == "LA" else "CMYK").convert(mode)
    image = Image.fromarray(array if mode == "RGBA" else np.ascontiguousarray(array[:, :, :3]))
    return image.convert("P", palette=Image.Palette.ADAPTIVE) if mode == "P" else image
