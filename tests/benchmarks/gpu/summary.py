"""The few figures that everything else stands behind."""

from __future__ import annotations

from typing import Any

_COMPILED = "torch.compile bf16"


def summary(found: dict[str, Any]) -> dict[str, Any]:
    """What the sections found, where they ran; what did not run is not named."""
    named: dict[str, Any] = {}
    if bandwidth := found["roofline"].get("copy_bytes_per_second"):
        named["copy, TB/s"] = round(bandwidth / 1e12, 3)
    for precision, rate in found["roofline"].get("operations_per_second", {}).items():
        named[f"{precision} products, TFLOP/s"] = round(rate / 1e12, 1)
    if cases := found["kernels"].get("cases"):
        judged = sum(line.get("reached") is not None for line in cases)
        named["kernels right"] = f"{sum(line['status'] == 'right' for line in cases)} of {len(cases)}"
        named["kernels that reach their target"] = f"{found['kernels']['reached']} of {judged}"
    for name, model in found["models"].items():
        best = model.get("best", {})
        for what, item in best.items():
            named[f"{name}, {what}"] = f"{item['images_per_second']:.5g} images/s in batches of {item['batch']}"
        for what, base in (("plan", _COMPILED), ("plan int8", "plan"), ("plan fp8", "plan")):
            if what in best and base in best:
                ratio = best[what]["images_per_second"] / best[base]["images_per_second"]
                named[f"{name}, {what} over {base.removesuffix(' bf16')}, each at its best"] = round(ratio, 3)
    decoding = found["decoding"]
    if "cpu" in decoding:
        named["decoding, the CPU pool"] = f"{decoding['cpu']['images_per_second']:.5g} images/s"
    for library, record in decoding.get("gpu", {}).items():
        if record["status"] == "ran":
            named[f"decoding, {library} over the CPU pool"] = round(record["ratio"], 2)
    for part, over in (("in_process", "in process, batches over one by one"), ("http", "served, headrace over PyTorch")):
        if ratio := found["served"].get(part, {}).get("ratio"):
            named[over] = round(ratio, 2)
    return named
