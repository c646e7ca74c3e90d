import io

import pytest
from rich.console import Console

from headrace.runtime.export.comparison import Comparison, Form
from headrace.runtime.export.comparison_table import comparison_table


def form(name, **given):
    return Form(name=name, precision="fp32", kind="ONNX", bytes=12_300_000, load_seconds=0.5, memory_mb=80.0, **given)


@pytest.mark.parametrize("accuracy", [None, 0.75])
def test_a_line_for_each_that_runs_and_the_reasons_below(accuracy):
    fast = form("openvino fp32", times_ms={1: 4.0, 8: 20.0}, agreement=1.0, accuracy=accuracy, planned=(1, 8))
    lost = Form(name="kernels bf16", precision="bf16", kind="Triton kernels", why="kernels does not run on cpu")
    found = Comparison(
        model="net",
        version=1,
        forms=(fast, lost),
        counted_on="100 images, with eager fp32",
        metric="accuracy",
        plan=("the plan takes openvino fp32 at batch 1, 8: 1.20 times as fast as onnxruntime fp32 at batch 1",),
        load=(0.5, 0.4, 0.3),
    )
    console = Console(file=io.StringIO(), width=120)
    console.print(comparison_table(found))
    lines = [line.rstrip() for line in console.file.getvalue().splitlines()]
    cells = [
        "openvino",
        "fp32",
        "ONNX",
        "12.3",
        "0.50",
        "4",
        "400",
        "8",
        "80",
        "100.00%",
        *(["75.00%"] if accuracy else []),
        "1,",
        "8",
    ]
    assert lines[2].split() == cells
    assert lines[4:] == [
        "agreement is counted on 100 images, with eager fp32; load of the machine 0.5, 0.4, 0.3",
        "the plan takes openvino fp32 at batch 1, 8: 1.20 times as fast as onnxruntime fp32 at batch 1",
        "kernels bf16: kernels does not run on cpu",
    ]
