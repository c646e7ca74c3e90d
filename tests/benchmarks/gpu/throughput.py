"""One model, ResNet-50, ViT-S/16 or ResNet-101: every way to run it compared with eager, and timed per batch.

Images are on the device already. The operations of one image are counted by torch's own counter, two for each
multiply-accumulate of convolutions, matrix products and attention; their rate over the measured bf16 peak is the share of the
roofline, whatever precision ran.
"""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, Any

from gpu.bench import Subject, described
from gpu.contenders import NEEDS, OURS, Contenders, difference, repeated, run_all
from gpu.timing import in_turns

if TYPE_CHECKING:
    import torch
    from gpu.bench import Bench

_COMPILED = "torch.compile bf16"


def section(bench: Bench, name: str) -> None:
    contenders, images, result = prepared(bench, name)
    calls = {}
    for what in bench.arguments.contenders:
        record = result["contenders"][what] = {}
        if bench.left < 0 or (not bench.quick and bench.here < NEEDS[what]):
            record["status"] = "skipped: no time left"
            bench.say(f"{name} {what}: {record['status']}")
        elif why := _unfit(bench, name, what):
            record["status"] = f"skipped: {why}"
            bench.say(f"{name} {what}: {record['status']}")
        elif (call := _made(bench, name, what, contenders, images, record)) is not None:
            calls[what] = call
    for batch in bench.batches:
        if batch > bench.batches[0] and bench.left < 10 and not bench.quick:
            result["batches_skipped"] = [str(one) for one in bench.batches if one >= batch]
            break
        _timed(bench, name, batch, calls, repeated(images, batch).to(bench.device), result)
    result["best"] = {what: best for what in calls if (best := _best(result, what)) is not None}
    for what, best in result["best"].items():
        share = best["share_of_bf16_roofline"]
        more = "" if share is None else f", {share:.1%} of the bf16 roofline"
        bench.say(f"{name} {what}: best at batch {best['batch']}, {best['images_per_second']:.5g} images/s{more}")
    contenders.close()


def prepared(bench: Bench, name: str) -> tuple[Contenders, torch.Tensor, dict[str, Any]]:
    """The model with margins in its scores, held-out images, and where its results go."""
    import torch
    from models import build, fitted, textures

    from headrace.runtime.tuning.randomize import randomized

    result: dict[str, Any] = {"contenders": {}, "batches": {}}
    bench.found["models"][name] = result
    size = bench.size
    example = torch.randn(2, 3, size, size)
    model = randomized(build(name, size, tiny=bench.quick), [example])
    model = fitted(model.to(bench.device), size, count=96 if bench.quick else 240)
    images, labels = textures(96 if bench.quick else 768, size, seed=2)
    with torch.no_grad():
        scores = torch.cat([model(part.to(bench.device)).cpu() for part in images.split(32)])
    result["eager_top1"] = (scores.argmax(1) == labels).double().mean().item()
    result["operations_per_image"] = operations(model, images[:1].to(bench.device))
    bench.say(f"{name}: eager top-1 on {len(images)} held-out textures {result['eager_top1']:.1%}")
    directory = bench.folder / name
    directory.mkdir()
    contenders = Contenders(
        model, images, labels, scores, batches=bench.batches, device=bench.device, directory=directory, quick=bench.quick
    )
    return contenders, images, result


def operations(model: torch.nn.Module, image: torch.Tensor) -> int:
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        model(image)
    return int(counter.get_total_flops())


def _unfit(bench: Bench, name: str, what: str) -> str | None:
    """Why a contender is not for this model or device; None when it is."""
    from headrace.runtime import backends
    from headrace.runtime.base.session import Target
    from headrace.specs import FP8

    if what == "plan int8" and not name.startswith("resnet"):
        return "int8 on GPUs is for convolutions"
    if what != "plan fp8":
        return None
    if not name.startswith("vit") or bench.quick:
        return "fp8 is for wide linear layers, which are a transformer's, and not a small one's"
    return backends.get("inductor").supports(Target(device=bench.device, precision=FP8))


def _made(bench: Bench, name: str, what: str, contenders: Contenders, images: torch.Tensor, record: dict[str, Any]) -> Any:
    """The contender as a function, compared with eager; None with the reason in the record."""
    begin = time.monotonic()
    try:
        call, record["about"] = contenders.get(what, bench.here)
        given = run_all(call, images, bench.device)
        for batch in bench.batches:
            call(repeated(images, batch).to(bench.device))  # compiles or records what it needs
    except Exception as error:  # noqa: BLE001 - one contender's failure is a result; the others are measured
        record["status"] = f"failed: {described(error)}"
        if what in OURS:
            bench.failed(f"{name} {what}: {record['status']}")
        else:
            bench.say(f"{name} {what}: {record['status']}")
        return None
    record |= {
        "status": "ran",
        "seconds_to_prepare": time.monotonic() - begin,
        "top1_agreement": (given.argmax(1) == contenders.scores.argmax(1)).double().mean().item(),
        "difference": difference([contenders.scores], [given]),
    }
    bench.say(
        f"{name} {what}: ready after {record['seconds_to_prepare']:.0f} s, top-1 as eager's for {record['top1_agreement']:.1%}"
    )
    if what == "plan" and contenders.planned is not None:
        signature, plan = contenders.planned
        if bench.subject is None:
            bench.subject = Subject(
                name=name, model=contenders.model, signature=signature, plan=plan, directory=contenders.directory
            )
    return call


def _timed(bench: Bench, name: str, batch: int, calls: dict[str, Any], rows: torch.Tensor, result: dict[str, Any]) -> None:
    line = in_turns({what: partial(call, rows) for what, call in calls.items()}, bench.device, 5.0 if bench.quick else 30.0)
    result["batches"][str(batch)] = line
    base, compiled = (line.get(what, {}).get("ms") for what in ("eager fp32", _COMPILED))
    peak = bench.found["roofline"].get("operations_per_second", {}).get("bf16")
    for what, item in line.items():
        item["images_per_second"] = 1000 * batch / item["ms"]
        item["ratio"] = base / item["ms"] if base else None
        item["ratio_to_torch_compile"] = compiled / item["ms"] if compiled else None
        rate = item["images_per_second"] * result["operations_per_image"]
        item["share_of_bf16_roofline"] = rate / peak if peak else None
        over = [f"{item['images_per_second']:.5g} images/s"]
        over += [f"{item['ratio']:.2f}x eager fp32"] if base else []
        over += [f"{item['ratio_to_torch_compile']:.2f}x torch.compile"] if compiled and what != _COMPILED else []
        bench.say(f"{name} batch {batch} {what}: {', '.join(over)}")


def _best(result: dict[str, Any], what: str) -> dict[str, Any] | None:
    """The batch at which it is fastest."""
    lines = [{"batch": int(batch), **line[what]} for batch, line in result["batches"].items() if what in line]
    return max(lines, key=lambda item: item["images_per_second"], default=None)
