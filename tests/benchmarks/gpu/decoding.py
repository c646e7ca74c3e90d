"""JPEGs to rows of a model's input: the CPU pool of `--decoding fast` beside every library that decodes on the GPU.

Rates are of images of 500x375, of whole batches and as the server asks for them, by threads with an image each. Pixels are held
to Pillow's, decoded and after resize and crop, since nvJPEG rounds and interpolates otherwise than libjpeg-turbo.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context
from typing import TYPE_CHECKING, Any

import numpy as np
from gpu.packages import FASTER, lacking
from gpu.pipeline import rate
from gpu.served import preprocessing

if TYPE_CHECKING:
    from gpu.bench import Bench

_BATCHES = (1, 8, 64)
# Levels on average from Pillow's, above which something is wrong; a few come of chroma that is not interpolated.
_FAR = 8.0


def section(bench: Bench, name: str) -> None:
    found = bench.found[name]
    if lacking({"PIL": "pillow"}):
        found["status"] = "skipped: Pillow is not installed, and nothing reads the headers without it"
        bench.say(found["status"])
        return
    from headrace.errors import BackendError
    from headrace.runtime.images.jpeg_decoders import LIBRARIES, open_library
    from headrace.serving.bench.images import write_synthetic_photos

    files = [path.read_bytes() for path in write_synthetic_photos(bench.folder / "jpegs", 4 if bench.quick else 64)]
    steps = preprocessing(bench).to_json()["steps"]
    found["images"] = f"{len(files)} synthetic JPEG photos of 500x375, {sum(map(len, files)) / len(files) / 1000:.0f} kB each"
    found["seconds_each"] = seconds = 0.2 if bench.quick else max(0.5, min(2.0, bench.here / 20))
    found["cpu"] = on_the_cpu(steps, files, seconds)
    found["processes"] = by_processes(steps, files, seconds / 2)
    bench.say(f"processes of two threads each decode {found['processes']} images/s")
    found["gpu"] = {}
    bench.say(f"{found['cpu']['threads']} threads decode {found['cpu']['images_per_second']:.5g} images/s on the CPU")
    for library in LIBRARIES:
        record = found["gpu"][library] = {"status": "failed"}
        try:
            decoder = open_library(library, bench.device)
        except BackendError as error:
            record["status"] = f"absent: {error}"
            bench.say(f"decoding by {library} is {record['status']}")
            continue
        record |= on_the_gpu(bench, decoder, steps, files, seconds)
        record["status"] = "ran"
        best = max([*record["batches"].values(), record["by_threads"]])
        record["ratio"] = best / found["cpu"]["images_per_second"]
        bench.say(
            f"{library}: {record['by_threads']:.5g} images/s by threads, {best:.5g} at best, {record['ratio']:.2f}x the CPU; "
            f"rows are {record['rows']['mean']:.3g} levels from Pillow's on average, {record['rows']['greatest']} at most"
        )
        if record["rows"]["mean"] > _FAR:
            bench.failed(f"decoding by {library}: rows are {record['rows']['mean']:.3g} levels from Pillow's on average")
    if all(record["status"] != "ran" for record in found["gpu"].values()):
        found["status"] = "no library here decodes JPEGs on the GPU; only the CPU pool was measured"
        bench.say(found["status"])
    else:
        found["status"] = "ran"


def on_the_cpu(steps: Sequence[Any], files: Sequence[bytes], seconds: float) -> dict[str, Any]:
    """A thread per core, as `--decoding fast` has them."""
    from headrace.runtime.base.fingerprint import available_cores
    from headrace.runtime.base.memory import keep_freed_memory
    from headrace.serving.images.fast_preprocessing import make_preprocessor

    keep_freed_memory()
    fast, threads = make_preprocessor(steps), available_cores()
    with ThreadPoolExecutor(threads) as pool:
        speed = rate(lambda: len(list(pool.map(fast, files))), seconds, "cpu")
    way = "Pillow alone" if lacking(FASTER) else "libjpeg-turbo and a SIMD resize"
    return {"way": way, "threads": threads, "images_per_second": speed, "rows": far_apart(fast.decode, steps, files)}


def by_processes(steps: Sequence[Any], files: Sequence[bytes], seconds: float) -> dict[str, float]:
    """Images per second of so many processes with two threads each, as front ends have them, all at once."""
    from headrace.runtime.base.fingerprint import available_cores

    most = max(2, available_cores() // 2)
    with ProcessPoolExecutor(most, get_context("spawn")) as pool:
        list(pool.map(_of_two_threads, [steps] * most, [files[:2]] * most, [0.1] * most))  # imports
        counts = sorted({1, most // 4, most // 2, most} - {0})
        rates = {n: list(pool.map(_of_two_threads, [steps] * n, [files] * n, [seconds] * n)) for n in counts}
    return {str(count): sum(each) for count, each in rates.items()}


def _of_two_threads(steps: Sequence[Any], files: Sequence[bytes], seconds: float) -> float:
    from headrace.runtime.base.memory import keep_freed_memory
    from headrace.serving.images.fast_preprocessing import make_preprocessor

    keep_freed_memory()
    fast = make_preprocessor(steps, pixels=True)
    with ThreadPoolExecutor(2) as pool:
        return rate(lambda: len(list(pool.map(fast, files))), seconds, "cpu")


def on_the_gpu(bench: Bench, decoder: Any, steps: Sequence[Any], files: Sequence[bytes], seconds: float) -> dict[str, Any]:
    """Images per second of each batch size and by the server's threads, and how far pixels lie from Pillow's."""
    from PIL import Image

    from headrace.runtime.images.gpu_images import GpuImages
    from headrace.serving.images.decode_pool import decode_rows
    from headrace.serving.images.gpu_preprocessing import GPU_BATCH, GpuPreprocessor

    images = GpuImages(steps, device=bench.device, decoder=decoder)
    served = GpuPreprocessor(steps, images)
    batches = {}
    for batch in _BATCHES[: 2 if bench.quick else 3]:
        some = [files[number % len(files)] for number in range(batch)]
        batches[str(batch)] = rate(lambda some=some: len(images.rows(some)), seconds, bench.device)
    shape, many = (3, bench.size, bench.size), [files[number % len(files)] for number in range(4 * GPU_BATCH)]

    def by_server(data: bytes) -> np.ndarray:
        return decode_rows(served, [data], shape)

    with ThreadPoolExecutor(2 * GPU_BATCH) as pool:
        threads = rate(lambda: len(list(pool.map(by_server, many))), seconds, bench.device)
    pixels = GpuImages(steps, device=bench.device, decoder=decoder, pixels=True)
    whole = [np.asarray(Image.open(io.BytesIO(data))) for data in files]
    decoded = [(a.cpu().numpy(), b) for a, b in zip(decoder(files), whole, strict=True)]
    return {
        "batches": batches,
        "by_threads": threads,
        "threads": 2 * GPU_BATCH,
        "decoded": described(decoded),
        "rows": far_apart(lambda data: pixels.rows([data])[0], steps, files),
    }


def far_apart(decode: Any, steps: Sequence[Any], files: Sequence[bytes]) -> dict[str, float]:
    """Rows before the arithmetic, in levels of 255, against the exact way's."""
    from headrace.runtime.images.preprocessing import Preprocessor

    exact = Preprocessor(steps)
    return described([(decode(data), exact.decode(data)) for data in files])


def described(pairs: Sequence[tuple[np.ndarray, np.ndarray]]) -> dict[str, float]:
    """Mean and greatest difference in levels of 255, and the share of values that differ."""
    off = np.concatenate([np.abs(a.astype(np.int16) - b.astype(np.int16)).reshape(-1) for a, b in pairs])
    return {"mean": float(off.mean()), "greatest": int(off.max()), "share": float(np.count_nonzero(off) / off.size)}
