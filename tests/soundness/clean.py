"""`python -m tests.soundness clean --runs N`: models with nothing wrong are compiled, and whatever is refused is an alarm.

Needs torchvision, timm and scikit-learn (`make zoo-setup`). Each run draws a model, its weights, precision, backend, batch
sizes and budget from its seed. A lossy precision that costs a network its answers is refused
rightly: that is a judgement, counted apart.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any

from . import page

_RESULTS = Path(__file__).parents[2] / "build" / "soundness" / "clean.jsonl"
_TIMM = [
    "test_byobnet",
    "test_coatnet",
    "test_convnext",
    "test_convnext2",
    "test_convnext3",
    "test_efficientnet",
    "test_efficientnet_evos",
    "test_efficientnet_gn",
    "test_efficientnet_ln",
    "test_mambaout",
    "test_maxvit",
    "test_nfnet",
    "test_resnet",
    "test_vit",
    "test_vit2",
    "test_vit3",
    "test_vit4",
    "test_vit_relpos",
    "mobilenetv3_small_050",
    "mobilenetv2_035",
    "resnet10t",
    "resnet18",
    "regnetx_002",
    "regnety_002",
    "ghostnet_050",
    "lcnet_035",
    "lcnet_050",
    "tinynet_e",
    "mnasnet_small",
    "semnasnet_050",
    "tf_efficientnet_lite0",
    "convnext_atto",
    "convnextv2_atto",
    "vit_tiny_patch16_224",
    "deit_tiny_patch16_224",
    "pit_ti_224",
    "levit_128s",
    "mobilevit_xxs",
    "mobilevitv2_050",
    "edgenext_xx_small",
    "efficientformerv2_s0",
    "repvgg_a0",
    "mobileone_s0",
    "xcit_nano_12_p16_224",
    "fastvit_t8",
    "repghostnet_050",
    "starnet_s050",
    "nf_regnet_b0",
    "efficientvit_b0",
    "efficientvit_m0",
    "mobilenetv4_conv_small_035",
    "inception_next_atto",
    "pvt_v2_b0",
    "resmlp_12_224",
    "mixer_s32_224",
]
_TORCHVISION = ["squeezenet1_1", "shufflenet_v2_x0_5", "mobilenet_v3_small", "mnasnet0_5", "resnet18", "regnet_y_400mf"]
_SIZES = (64, 96, 128, 160, 224)
_IMAGES = 84  # 20 set the ranges of int8, the others judge
# (precision, backend, whether there are images)
_ASKED: tuple[tuple[str, str | None, bool], ...] = (
    ("fp32", None, False),
    ("fp32", "onnxruntime", False),
    ("fp32", "openvino", False),
    ("fp32", "onnxruntime", True),
    ("fp32", "openvino", True),
    ("auto", None, True),
    ("bf16", "openvino", True),
    ("bf16", "eager", True),
    ("bf16", "openvino", False),
    ("int8", "onnxruntime", True),
    ("int8", "openvino", True),
)
# What says that a precision loses too much of this network, not that something is wrong with what computes in it.
_JUDGEMENTS = ("top-1 agrees", "scores are off by", "of the five best", "accuracy falls", "root mean square", "the tolerance")
# What stands beside the refusals in an error though it was never run.
_UNTRIED = ("this CPU has no ", "is for GPUs", "is predicted to take", "takes about ")
_UNPROVABLE = ("proves nothing", "amplifies rounding", "returns NaN or infinity")
KINDS = ("clean", "judged", "unprovable", "failed", "alarm")


def kind(text: str, *, lossy: bool, status: str) -> str:
    """What a refusal is: a judgement of the precision, nothing that could be proved, a library's error, or an alarm."""
    if any(part in text for part in _UNPROVABLE):
        return "unprovable"
    if lossy and any(part in text for part in _JUDGEMENTS) and "inputs that are rare" not in text:
        return "judged"
    return "alarm" if status == "refused" or "memory grew" in text else "failed"


def untried(line: str) -> bool:
    """Whether that line of an error is of a candidate that was never run."""
    return any(part in line for part in _UNTRIED)


def run(seed: int) -> dict[str, Any]:
    """One compilation: what was drawn, and each refusal with its kind."""
    import torch

    from headrace import GraphConfig
    from headrace.errors import BackendError, CaptureError, ParityError
    from headrace.runtime.capture.capture import capture
    from headrace.runtime.tuning.judging_data import JudgingData
    from headrace.runtime.tuning.source import CapturedSource
    from headrace.runtime.tuning.tune import tune

    torch.set_num_threads(1)
    drawn = random.Random(seed)
    name = drawn.choice([*(f"timm/{name}" for name in _TIMM), *(f"torchvision/{name}" for name in _TORCHVISION)])
    precision, backend, with_images = drawn.choice(_ASKED)
    buckets = tuple(sorted(drawn.sample((1, 2, 3, 4, 8, 16, 20, 32), drawn.choice((1, 2, 3)))))
    begin = time.process_time()
    model, images = _built(name, seed)
    found: dict[str, Any] = {
        "seed": seed,
        "model": name,
        "size": images.shape[-1],
        "asked": f"{precision} by {backend or 'any'}{' with images' if with_images else ''}",
        "buckets": buckets,
    }
    config = GraphConfig(
        precision=precision,  # type: ignore[arg-type]
        backend=backend,
        buckets=buckets,
        threads=1,
        max_tuning_seconds=drawn.choice((0.3, 1.0, 2.0)),
    )
    refused: list[tuple[str, str, bool]] = []
    try:
        source = CapturedSource.of(capture(model, torch.from_numpy(images[:2])))
        with tempfile.TemporaryDirectory() as folder:
            judging = JudgingData((images,) if with_images else ())
            plan = tune(source, config, directory=Path(folder), device="cpu", judging=judging)
        refused = [
            (f"{item.candidate} at {item.bucket}: {item.why}", item.status, item.choice.precision.lossy)
            for item in plan.measurements
            if item.status in ("refused", "failed")
        ]
        refused += [(f"pass {item.name}: {item.why}", "refused", False) for item in source.passes if item.status == "rejected"]
        found["parity"] = plan.worst_parity().to_json()
    except ParityError as error:
        lines = [line.strip() for line in str(error).splitlines()[1:]]
        refused = [(line, "refused", "fp32" not in line.partition(":")[0]) for line in lines if not untried(line)]
    except (BackendError, CaptureError) as error:
        refused = [(" ".join(str(error).split())[:400], "failed", precision != "fp32")]
    found["refused"] = [(kind(text, lossy=lossy, status=status), text) for text, status, lossy in dict.fromkeys(refused)]
    found["kind"] = max((item for item, _ in found["refused"]), key=KINDS.index, default="clean")
    found["seconds"] = round(time.process_time() - begin, 1)
    return found


def _built(name: str, seed: int) -> tuple[Any, Any]:
    """The network with weights from the seed, and photos' crops [84, 3, size, size] for it."""
    import torch

    from headrace.runtime.tuning.randomize import settled

    from ..zoo.torchvision_support import torchvision
    from .photos import photo_crops

    zoo = torchvision()  # timm imports it, too
    library, _, variant = name.partition("/")
    for size in _SIZES:
        try:
            torch.manual_seed(seed)
            if library == "torchvision":
                model = zoo.models.get_model(variant, weights=None, num_classes=100)
            else:
                import timm

                known = timm.get_pretrained_cfg(variant)
                resized = {"img_size": size} if known.fixed_input_size and size != known.input_size[-1] else {}
                model = timm.create_model(variant, pretrained=False, num_classes=100, **resized)
            example = torch.randn(2, 3, size, size)
            with torch.no_grad():
                model.eval()(example)
        except Exception:  # a network's own check of its size, or a shape that does not fit
            if size == _SIZES[-1]:
                raise
        else:
            return settled(model, [example], seed=seed), photo_crops(_IMAGES, size, seed=seed)
    raise AssertionError("the last size either returns or raises")


def main(arguments: list[str]) -> int:
    """Carry out the runs that are not yet in build/soundness/clean.jsonl; 1 where there was an alarm."""
    parser = argparse.ArgumentParser(prog="python -m tests.soundness clean")
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--first", type=int, default=0, help="the first run's seed, to share the work among processes")
    parser.add_argument("--fresh", action="store_true", help="carry out again what an earlier run has done")
    options = parser.parse_args(arguments)
    if options.fresh:
        _RESULTS.unlink(missing_ok=True)
    _RESULTS.parent.mkdir(parents=True, exist_ok=True)
    lines = _RESULTS.read_text().splitlines() if _RESULTS.exists() else []
    done = {item["seed"]: item for item in map(json.loads, lines)}
    for found in _carried_out(seed for seed in range(options.first, options.runs) if seed not in done):
        done[found["seed"]] = found
        with _RESULTS.open("a") as file:
            file.write(json.dumps(found) + "\n")
        print(found["seed"], found["model"], found.get("asked"), found["kind"], f"{found.get('seconds', 0)} s", flush=True)
        for what, text in found["refused"]:
            print(f"    {what}: {text}", flush=True)
    results = [done[seed] for seed in range(options.runs) if seed in done]
    counts = Counter(item["kind"] for item in results)
    print(", ".join(f"{counts[name]} {name}" for name in KINDS))
    alarms = [item for item in results if item["kind"] == "alarm"]
    models = len({item["model"] for item in results})
    page.update("clean", {"runs": len(results), "models": models, "counts": counts, "alarms": alarms})
    return 1 if alarms else 0


def _carried_out(seeds: Iterable[int]) -> Iterable[dict[str, Any]]:
    """Each in a process that several share and that may end: a crash is that run's outcome."""
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(1, mp_context=context, max_tasks_per_child=20)
    for seed in seeds:
        try:
            yield pool.submit(run, seed).result()
        except BrokenProcessPool:
            pool = ProcessPoolExecutor(1, mp_context=context, max_tasks_per_child=20)
            yield {"seed": seed, "model": "?", "kind": "failed", "refused": [("failed", "its process ended")]}
        except Exception as error:  # noqa: BLE001 - libraries raise anything while they build a network
            yield {
                "seed": seed,
                "model": "?",
                "kind": "failed",
                "refused": [("failed", f"{type(error).__name__}: {error}"[:400])],
            }
    pool.shutdown()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
