"""What this GPU can do at most, measured before anything is held against it: copying, and matrix products per precision.

Beside serving/roofline.py, which asks the same of every backend of a packaged model: here medians with their spread,
TF32 and fp8, and nothing but torch. Matrices are random: of zeros a GPU computes products faster than of anything else.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from gpu.timing import in_turns

if TYPE_CHECKING:
    from gpu.bench import Bench

_COPIED = (64 << 20, 256 << 20, 1 << 30, 4 << 30)  # bytes, read and written again each
_SIDES = (4096, 8192)


def section(bench: Bench, name: str) -> None:
    roof = bench.found[name]
    roof["copies"] = copies(bench.device, (1 << 20, 4 << 20) if bench.quick else _COPIED)
    # What partly stays in the cache is faster than memory, and no roof.
    beyond = [item for item in roof["copies"] if item["bytes"] > 4 * cache_bytes(bench.device)] or roof["copies"]
    roof["copy_bytes_per_second"] = max(item["bytes_per_second"] for item in beyond)
    bench.say(f"copies {roof['copy_bytes_per_second'] / 1e12:.3g} TB/s, read and write counted")
    roof["products"] = products(bench.device, (128,) if bench.quick else _SIDES)
    roof["operations_per_second"] = {}
    for item in roof["products"]:
        if "operations_per_second" in item:
            best = roof["operations_per_second"].get(item["precision"], 0.0)
            roof["operations_per_second"][item["precision"]] = max(best, item["operations_per_second"])
        else:
            bench.say(f"{item['precision']} products: {item['why']}")
    for precision, rate in roof["operations_per_second"].items():
        bench.say(f"{precision} products {rate / 1e12:.4g} TFLOP/s")


def cache_bytes(device: str) -> int:
    """Of the last cache before memory."""
    if device != "cuda":
        return 0
    import torch

    return int(getattr(torch.cuda.get_device_properties(0), "L2_cache_size", 64 << 20))


def copies(device: str, sizes: tuple[int, ...]) -> list[dict[str, Any]]:
    import torch

    found = []
    for size in sizes:
        source = torch.empty(size, dtype=torch.uint8, device=device).random_()
        target = torch.empty_like(source)
        taken = in_turns({"copy": lambda source=source, target=target: target.copy_(source)}, device, 20.0)["copy"]
        found.append({"bytes": 2 * size, "bytes_per_second": 2 * size / taken["ms"] * 1e3, **taken})
    return found


def products(device: str, sides: tuple[int, ...]) -> list[dict[str, Any]]:
    """Square products of each precision and side; `why` where torch has none here."""
    found: list[dict[str, Any]] = []
    for side in sides:
        for precision, make in _PRODUCTS.items():
            line: dict[str, Any] = {"precision": precision, "side": side}
            found.append(line)
            try:
                taken = in_turns({"product": make(device, side)}, device, 40.0)["product"]
            except (RuntimeError, ValueError, AttributeError, NotImplementedError) as error:
                line["why"] = f"torch has no such product here: {' '.join(str(error).split())[:200]}"
                continue
            line |= {"operations_per_second": 2 * side**3 / taken["ms"] * 1e3, **taken}
    return found


def _floats(dtype: str, *, tf32: bool = False) -> Callable[[str, int], Callable[[], object]]:
    def make(device: str, side: int) -> Callable[[], object]:
        import torch

        one, other = torch.randn(2, side, side, device=device).to(getattr(torch, dtype))

        def call() -> object:
            before = torch.backends.cuda.matmul.allow_tf32
            torch.backends.cuda.matmul.allow_tf32 = tf32
            try:
                return torch.mm(one, other)
            finally:
                torch.backends.cuda.matmul.allow_tf32 = before

        if tf32 and device != "cuda":
            raise ValueError("TF32 is of NVIDIA GPUs")
        return call

    return make


def _int8(device: str, side: int) -> Callable[[], object]:
    import torch

    one, other = torch.randint(-128, 128, (2, side, side), dtype=torch.int8, device=device)
    turned = other.t()  # columns one after another, as tensor cores take them
    return lambda: torch._int_mm(one, turned)


def _fp8(device: str, side: int) -> Callable[[], object]:
    import torch

    if device != "cuda":
        raise ValueError("fp8 is of GPUs")
    one, other = (torch.randn(side, side, device=device).to(torch.float8_e4m3fn) for _ in range(2))
    scale = torch.ones((), device=device)
    return lambda: torch._scaled_mm(one, other.t(), scale_a=scale, scale_b=scale, out_dtype=torch.bfloat16)


_PRODUCTS = {
    "fp32": _floats("float32"),
    "tf32": _floats("float32", tf32=True),
    "bf16": _floats("bfloat16"),
    "fp16": _floats("float16"),
    "int8": _int8,
    "fp8": _fp8,
}
