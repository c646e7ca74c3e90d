"""`make bench-by-hand`: our plan against the strongest that a good engineer would write by hand, at batches 1 and 8.

    python tests/benchmarks/by_hand.py [--models resnet50,timm:mixer_s16_224] [--busy N] [--seconds S] [--fresh]

By hand: OpenVINO in fp32, with the bf16 hint, and int8 by NNCF with either between its layers, in one stream and at batch 8 in
two; ONNX Runtime in fp32 and int8 (QDQ, unsigned activations, per channel); torch.compile with freezing in bf16.
Everything for one batch size is compiled for it alone, where the library can. Our plan is what `headrace.compile` makes with
its defaults from the same images.

Each model runs in a process of its own, in which all take turns in a changing order. `--busy N` keeps N other processes
computing meanwhile. What is done already is not done again, unless `--fresh`. By hand nobody checks accuracy, so there are two
ratios: to the fastest by hand, and to the fastest whose top-1 agrees with eager as our gate demands.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
MODELS = (
    *("resnet50", "vit_small_patch16_224", "convnext_tiny", "efficientnet_b0"),
    *("mobilenet_v3_large", "swin_t", "regnet_y_1_6gf", "deit_small_patch16_224"),
)
_OF_TIMM = "timm:"  # before the name of any other model of theirs
BATCHES = (1, 8)
_CALIBRATION, _ROUNDS, _SAMPLE, _PAUSE, _HOPELESS = 128, 7, 0.02, 0.1, 3.0
_NOT_WORTH = 10.0  # times ours: bf16 where the processor has none would take its minutes for the agreement alone
_KIND = ("cpu", "flags", "cores")  # of the fingerprint: what tells two machines apart
_AGREEMENT = 0.995  # the gate's, for images without labels

Run = Callable[[Any], Any]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default=",".join(MODELS), help="comma-separated")
    parser.add_argument("--busy", type=int, default=0, metavar="N", help="processes that keep cores busy beside it")
    parser.add_argument("--seconds", type=float, default=20.0, help="of measuring per model and batch size")
    parser.add_argument("--fresh", action="store_true", help="measure again what is done already")
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "by-hand.json")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        print(json.dumps(measured(arguments.one, arguments.seconds)))
        return
    names = arguments.models.split(",")
    if unknown := sorted(name for name in set(names) - set(MODELS) if not name.startswith(_OF_TIMM)):
        parser.error(f"{unknown[0]} is none of {', '.join(MODELS)}, nor timm: and the name of one of theirs")
    from headrace.runtime.base.fingerprint import fingerprint

    here = fingerprint()
    empty: dict[str, Any] = {"command": "make bench-by-hand", "machines": []}
    found = json.loads(arguments.out.read_text()) if arguments.out.exists() else empty
    done = of_machine(found["machines"], here)["runs"].setdefault(str(arguments.busy), {})
    for name in names:
        if name in done and not arguments.fresh:
            print(f"{name}: done on {done[name]['date']}")
            continue
        with busy(arguments.busy):
            model = in_process(name, arguments.seconds)
        if model is None:
            print(f"{name}: its process failed, see above; the next run measures it again")
            continue
        done[name] = model
        arguments.out.parent.mkdir(parents=True, exist_ok=True)
        arguments.out.write_text(json.dumps(found, indent=1) + "\n")
        arguments.out.with_suffix(".md").write_text(page(found))
        for batch, line in model["batches"].items():
            print(f"{name} batch {batch}: {line['ratio']:.2f} of {line['best']}; ours {line['ours']['runs']}")
    print(f"written to {arguments.out} and {arguments.out.with_suffix('.md').name}")


def of_machine(machines: list[dict[str, Any]], here: dict[str, Any]) -> dict[str, Any]:
    """The figures of this machine among those of all, added where there are none: those of two never stand in one table, and
    other versions of the libraries begin anew."""
    kind = [here[key] for key in _KIND]
    same = next((machine for machine in machines if [machine["fingerprint"][key] for key in _KIND] == kind), None)
    if same is None:
        machines.append(same := {"fingerprint": here, "runs": {}})
    elif same["fingerprint"] != here:
        same |= {"fingerprint": here, "runs": {}}
    return same


def in_process(name: str, seconds: float) -> dict[str, Any] | None:
    """The model's figures from a process of its own; None where that failed."""
    command = [sys.executable, str(Path(__file__).resolve()), "--one", name, "--seconds", str(seconds)]
    ended = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    return None if ended.returncode else json.loads(ended.stdout.splitlines()[-1])


@contextlib.contextmanager
def busy(count: int) -> Iterator[None]:
    """So many processes that compute without end meanwhile."""
    others = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for other in others:
            other.kill()
            other.wait()


def measured(name: str, seconds: float) -> dict[str, Any]:
    """All figures of one model: the date, load, our plan, what tuning took, what was left out, a line per batch size."""
    sys.path.insert(0, str(Path(__file__).parent))
    import numpy as np
    import torch

    from headrace.runtime.base.session import default_threads

    torch.set_num_threads(default_threads())
    model, data = network(name)
    images = data["test"]
    with torch.no_grad():
        scores = np.concatenate([model(torch.from_numpy(part)).numpy() for part in np.array_split(images, len(images) // 16)])
    fit = data["fit"][:: max(1, len(data["fit"]) // _CALIBRATION)][:_CALIBRATION]
    result: dict[str, Any] = {"date": datetime.date.today().isoformat(), "batches": {}, "left_out": {}}
    with tempfile.TemporaryDirectory() as folder:
        ours, result["plan"], result["tuning"] = plan_of(model, images, fit, Path(folder) / "plan")
        makers = by_hand(model, fit, Path(folder))
        load = os.getloadavg()[0]
        for batch in BATCHES:
            runs, names = {"ours": ours(batch)}, {}
            taken = once(runs["ours"], images[:batch])
            for label, make in makers.items():
                if "2 streams" in label and batch % 2:
                    continue
                try:
                    run = make(batch)
                    if (slower := once(run, images[:batch]) / taken) > _NOT_WORTH:
                        result["left_out"][f"{label}, batch {batch}"] = f"takes {slower:.0f} times as long as ours"
                        continue
                    runs[label], names[label] = run, agreement(run, images, scores, batch)
                except Exception as error:  # noqa: BLE001 - what a library cannot do is a result
                    first = next(iter(str(error).splitlines()), "")
                    result["left_out"][f"{label}, batch {batch}"] = f"{type(error).__name__}: {first[:200]}"
            own = agreement(runs["ours"], images, scores, batch)
            times = interleaved(runs, images[:batch], seconds)
            result["batches"][str(batch)] = compared(times, names, result["plan"]["choices"][str(batch)], own)
        result["load"] = [round(load, 2), round(os.getloadavg()[0], 2)]
    return result


def network(name: str) -> tuple[Any, dict[str, Any]]:
    """The model with weights that give margins on the photos, and those."""
    import zoo_models

    zoo_models.MODELS |= {
        "convnext_tiny": zoo_models._torchvision("convnext_tiny"),
        "efficientnet_b0": zoo_models._torchvision("efficientnet_b0"),
        "swin_t": zoo_models._torchvision("swin_t"),
        "regnet_y_1_6gf": zoo_models._torchvision("regnet_y_1_6gf"),
        "deit_small_patch16_224": zoo_models._timm("deit_small_patch16_224"),
    }
    if name.startswith(_OF_TIMM):
        zoo_models.MODELS[name] = zoo_models._timm(name.removeprefix(_OF_TIMM))
    data = zoo_models.photos()
    return zoo_models.build(name, data), data


def is_transformer(model: Any) -> bool:
    """Whether some layer of it attends, as its class is called: quantizers want to be told."""
    return any("attention" in type(module).__name__.lower() for module in model.modules())


def plan_of(model: Any, images: Any, fit: Any, folder: Path) -> tuple[Callable[[int], Run], dict[str, Any], dict[str, Any]]:
    """What opens our session for a batch size, the plan in words, and what tuning took."""
    import torch

    import headrace
    from headrace.runtime import backends
    from headrace.runtime.tuning.budget import cpu_seconds

    wall, work = time.monotonic(), cpu_seconds()
    graph = headrace.compile(model, torch.from_numpy(images[:2]), images=images, calibration=fit)
    tuning = {"wall_seconds": round(time.monotonic() - wall, 1), "cpu_seconds": round(cpu_seconds() - work, 1)}
    plan = graph.plan
    graph.save(folder)
    from headrace.runtime.artifact.artifact import load_artifact

    artifact = load_artifact(folder, trusted=True)

    def open_ours(batch: int) -> Run:
        choice = plan.choice(batch)
        opened = backends.get(choice.backend).open(artifact.path, plan.target(batch), choice.files)
        return lambda rows: opened.run([rows])[0]

    choices = {str(batch): str(plan.choice(batch)) for batch in sorted({*plan.choices, *BATCHES})}
    return open_ours, {"choices": choices, "cut": plan.cut}, tuning


def by_hand(model: Any, fit: Any, folder: Path) -> dict[str, Callable[[int], Run]]:
    """What makes each form for a batch size; a form is made when it is asked for."""
    import torch

    from headrace.runtime.base.session import default_threads

    threads = default_threads()
    path = folder / "by-hand.onnx"
    torch.onnx.export(
        model, (torch.from_numpy(fit[:2]),), str(path), dynamo=True, verbose=False, external_data=False,
        dynamic_shapes=({0: torch.export.Dim("batch")},), input_names=["images"], output_names=["scores"],
    )  # fmt: skip
    quantized: dict[str, Any] = {}
    attends = is_transformer(model)
    forms: dict[str, Callable[[int], Run]] = {}
    for precision in ("fp32", "bf16", "int8", "int8+bf16"):
        for streams in (1, 2):
            label = f"openvino {precision}, {streams} streams".replace("1 streams", "1 stream")
            forms[label] = lambda batch, p=precision, s=streams: openvino_run(
                attends, path, fit, quantized, p, batch, s, threads
            )
    forms["onnxruntime fp32"] = lambda batch: onnxruntime_run(path, threads)
    forms["onnxruntime int8"] = lambda batch: onnxruntime_run(onnxruntime_int8(path, fit, attends), threads)
    forms["inductor bf16"] = lambda batch: inductor_run(model, "bf16", batch)
    return forms


def openvino_run(
    attends: bool, path: Path, fit: Any, quantized: dict[str, Any], precision: str, batch: int, streams: int, threads: int
) -> Run:
    """Compiled for that batch, whose equal parts so many infer requests compute side by side."""
    import numpy as np
    import openvino

    core = openvino.Core()
    model = core.read_model(str(path))
    if precision.startswith("int8"):
        if "model" not in quantized:
            import nncf

            more = {"model_type": nncf.ModelType.TRANSFORMER} if attends else {}
            rows = nncf.Dataset([fit[index : index + 1] for index in range(len(fit))])
            quantized["model"] = nncf.quantize(model, rows, preset=nncf.QuantizationPreset.MIXED, subset_size=len(fit), **more)
        model = quantized["model"].clone()
    part = batch // streams
    model.reshape({model.inputs[0]: [part, *fit.shape[1:]]})
    settings = {
        "INFERENCE_PRECISION_HINT": "bf16" if precision.endswith("bf16") else "f32",
        "INFERENCE_NUM_THREADS": threads,
        "NUM_STREAMS": streams,
        "PERFORMANCE_HINT": "LATENCY" if streams == 1 else "THROUGHPUT",
        "ENABLE_CPU_PINNING": False,
    }
    compiled = core.compile_model(model, "CPU", settings)
    requests = [compiled.create_infer_request() for _ in range(streams)]
    if streams == 1:
        return lambda rows: requests[0].infer([rows], share_inputs=True, share_outputs=False)[0]

    def run(rows: Any) -> Any:
        for index, request in enumerate(requests):
            request.start_async([np.ascontiguousarray(rows[index * part : (index + 1) * part])], share_inputs=True)
        for request in requests:
            request.wait()
        return np.concatenate([request.get_output_tensor(0).data for request in requests])

    return run


def onnxruntime_run(path: Path, threads: int) -> Run:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    return lambda rows: session.run(None, {"images": rows})[0]


def onnxruntime_int8(path: Path, fit: Any, attends: bool) -> Path:
    """The graph quantized as ONNX Runtime's documentation advises for x86: QDQ, unsigned activations, weights per channel."""
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static
    from onnxruntime.quantization.shape_inference import quant_pre_process

    made = path.with_name("by-hand-int8.onnx")
    if made.exists():
        return made

    class Rows(CalibrationDataReader):  # type: ignore[misc]
        def __init__(self) -> None:
            self._rows = iter([{"images": fit[index : index + 1]} for index in range(len(fit))])

        def get_next(self) -> Any:
            return next(self._rows, None)

    ready = path.with_name("by-hand-ready.onnx")
    quant_pre_process(str(path), str(ready), skip_symbolic_shape=attends)
    quantize_static(
        str(ready), str(made), Rows(), quant_format=QuantFormat.QDQ, per_channel=True,
        activation_type=QuantType.QUInt8, weight_type=QuantType.QInt8,
    )  # fmt: skip
    return made


def inductor_run(model: Any, precision: str, batch: int) -> Run:
    import copy

    import torch

    dtype = torch.bfloat16 if precision == "bf16" else torch.float32
    own = copy.deepcopy(model).to(dtype).to(memory_format=torch.channels_last).eval()
    compiled = torch.compile(own, dynamic=False, options={"freezing": True})

    def run(rows: Any) -> Any:
        with torch.no_grad():
            given = torch.from_numpy(rows).to(dtype).contiguous(memory_format=torch.channels_last)
            return compiled(given).float().numpy()

    return run


def once(run: Run, rows: Any) -> float:
    """Seconds of the second call: the first one may still compile."""
    run(rows)
    begin = time.perf_counter()
    run(rows)
    return time.perf_counter() - begin


def agreement(run: Run, images: Any, scores: Any, batch: int) -> float:
    """The share of images, in whole batches, whose best class is eager's."""
    import numpy as np

    count = len(images) // batch * batch
    given = np.concatenate([run(np.ascontiguousarray(images[at : at + batch])) for at in range(0, count, batch)])
    return float((given.argmax(1) == scores[:count].argmax(1)).mean())


def interleaved(runs: dict[str, Run], rows: Any, seconds: float) -> dict[str, list[float]]:
    """Seconds per call by name: rounds in a turning order for so long, seven at least; what takes three times the best after
    three rounds runs no more."""
    import numpy as np

    rows = np.ascontiguousarray(rows)
    calls, found = {}, {name: [] for name in runs}  # type: ignore[var-annotated]
    for name, run in runs.items():
        calls[name] = max(1, round(_SAMPLE / max(once(run, rows), 1e-6)))
    end, running, turn = time.monotonic() + seconds, list(runs), 0
    while turn < _ROUNDS or time.monotonic() < end:
        for name in running[turn % len(running) :] + running[: turn % len(running)]:
            time.sleep(_PAUSE)  # the threads of the one before spin: right after ONNX Runtime, OpenVINO takes 12.3 ms for 6.8
            runs[name](rows)
            begin = time.perf_counter()
            for _ in range(calls[name]):
                runs[name](rows)
            found[name].append((time.perf_counter() - begin) / calls[name])
        turn += 1
        if turn == 3:
            best = min(map(statistics.median, found.values()))
            running = [name for name in running if name == "ours" or statistics.median(found[name]) <= _HOPELESS * best]
    return found


def compared(times: dict[str, list[float]], agreements: dict[str, float], choice: str, own: float) -> dict[str, Any]:
    """Medians with quartiles in milliseconds per call, and how fast ours is beside the best by hand: 1 is as fast."""
    table = {name: quartiles(seconds) for name, seconds in times.items()}
    ours = {"runs": choice, **table.pop("ours"), "agreement": own}
    for name, line in table.items():
        line["agreement"] = agreements[name]
    best = min(table, key=lambda name: table[name]["median_ms"])
    agreeing = [name for name in table if agreements[name] >= _AGREEMENT]
    found = {"ours": ours, "by_hand": table, "best": best, "ratio": table[best]["median_ms"] / ours["median_ms"]}
    if agreeing:
        second = min(agreeing, key=lambda name: table[name]["median_ms"])
        found |= {"best_agreeing": second, "ratio_agreeing": table[second]["median_ms"] / ours["median_ms"]}
    return found


def quartiles(seconds: list[float]) -> dict[str, Any]:
    low, middle, high = (1000 * value for value in statistics.quantiles(seconds, n=4, method="inclusive"))
    return {"median_ms": middle, "low_ms": low, "high_ms": high, "samples": len(seconds)}


def page(found: dict[str, Any]) -> str:
    """The tables as Markdown: for each machine one for each number of busy processes."""
    lines = [
        "# Beside the best by hand",
        "",
        f"Written by `{found['command']}`.",
        "",
        "Our plan, made with the defaults, beside the strongest forms that one would write by hand, which are listed in",
        "tests/benchmarks/by_hand.py, all in one process and in turns. A ratio of 1 is as fast as the best by hand, more is",
        "faster. By hand nobody checks accuracy: the second ratio is to the fastest whose top-1 agrees with eager on 99.5 % of",
        "the images. Times are milliseconds per call, in brackets the quartiles.",
    ]
    for machine in found["machines"]:
        here = machine["fingerprint"]
        versions = ", ".join(f"{name} {version}" for name, version in here["versions"].items() if version)
        lines += ["", f"## {here['cores']} cores of {here['cpu']}", "", f"{', '.join(here['flags'])}; {versions}."]
        for others, models in sorted(machine["runs"].items()):
            if models:
                beside = "alone" if others == "0" else f"with {others} other processes that compute without end"
                lines += ["", f"### {beside.capitalize()}", "", *_table(models)]
    return "\n".join(lines) + "\n"


def _table(models: dict[str, Any]) -> list[str]:
    lines = ["| model | batch | ours, ms | runs | best by hand, ms | ratio | best that agrees | ratio | load | plan made in |"]
    lines += ["| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |"]
    for name, model in models.items():
        for batch, line in model["batches"].items():
            tuning, load = model["tuning"], "-".join(map(str, model["load"]))
            ours, best = _ms(line["ours"]), f"{line['best']} {_ms(line['by_hand'][line['best']])}"
            second = (line.get("best_agreeing", "none"), f"{line['ratio_agreeing']:.2f}" if "best_agreeing" in line else "")
            cells = [name, batch, ours, line["ours"]["runs"], best, f"{line['ratio']:.2f}", *second, load]
            cells.append(f"{tuning['wall_seconds']:.0f} s, {tuning['cpu_seconds']:.0f} CPU-s")
            lines.append(f"| {' | '.join(cells)} |")
    notes = [f"- {name}: {model['plan']['cut']}" for name, model in models.items() if model["plan"]["cut"]]
    notes += [f"- {name}, {what}: {why}" for name, model in models.items() for what, why in model["left_out"].items()]
    return [*lines, "", *notes] if notes else lines


def _ms(line: dict[str, Any]) -> str:
    return f"{line['median_ms']:.3g} ({line['low_ms']:.3g}-{line['high_ms']:.3g})"


if __name__ == "__main__":
    main()
