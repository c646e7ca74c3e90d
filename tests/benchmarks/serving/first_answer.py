"""How long after its start `headrace serve` gives its first answer, and how much memory it takes, for a ResNet-18.

    python tests/benchmarks/serving/first_answer.py [--python VENV/bin/python] [--runs 5] [--models DIR]

--python names an environment with `pip install 'headrace[serve]'`, whose size is told too. The model is made by this checkout's
own environment, which has torch, unless --models names a repository with a model `resnet18`. Every run is a process of its own.
The answer is that of a single row over HTTP, asked for once the model answers; a bodiless request finds that out every 5 ms
(503 while it is loading, then 400). Processor time until then is told too: on a busy machine it is the steadier figure.
"""

from __future__ import annotations

import argparse
import array
import http.client
import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

NAME, SIDE = "resnet18", 224
ROWS = array.array("f", [0.5]) * (3 * SIDE * SIDE)
MIB = 1 << 20


def package(folder: Path) -> None:
    """The model, by torch, compiled and packaged as `headrace compile` does."""
    import torch
    from torch import nn

    import headrace

    class Block(nn.Module):
        def __init__(self, inside: int, out: int, stride: int) -> None:
            super().__init__()
            self.first = nn.Sequential(nn.Conv2d(inside, out, 3, stride, 1, bias=False), nn.BatchNorm2d(out), nn.ReLU())
            self.second = nn.Sequential(nn.Conv2d(out, out, 3, 1, 1, bias=False), nn.BatchNorm2d(out))
            shortcut = nn.Sequential(nn.Conv2d(inside, out, 1, stride, bias=False), nn.BatchNorm2d(out))
            self.shortcut = nn.Identity() if stride == 1 and inside == out else shortcut

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.relu(self.second(self.first(x)) + self.shortcut(x))

    layers: list[nn.Module] = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    inside = 64
    for out, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
        layers += [Block(inside, out, stride), Block(out, out, 1)]
        inside = out
    model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 1000)).eval()
    config = headrace.GraphConfig(precision="fp32", backend="onnxruntime")
    headrace.compile(model, torch.rand(2, 3, SIDE, SIDE), config=config).save(folder / NAME)


def first_answer(python: str, models: Path) -> dict[str, float]:
    """Start one server and end it; seconds and MiB."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    inputs = json.loads((models / NAME / "1" / "headrace.json").read_text())["signature"]["inputs"]
    tensor = {"name": inputs[0]["name"], "datatype": "FP32", "shape": [1, 3, SIDE, SIDE]}
    head = json.dumps({"inputs": [{**tensor, "parameters": {"binary_data_size": len(ROWS) * 4}}]}).encode()
    headers = {"Inference-Header-Content-Length": str(len(head))}
    with tempfile.TemporaryDirectory() as folder, (Path(folder) / "log").open("w+") as log:
        ready = Path(folder) / "ready.json"
        command = [
            python,
            "-m",
            "headrace",
            "serve",
            str(models),
            f"--http-port={port}",
            "--frontends=0",
            f"--ready-file={ready}",
        ]
        begin = time.perf_counter()
        process = subprocess.Popen(
            [*command, "--grpc-port=0", "--metrics-port=0"], stdout=log, stderr=subprocess.STDOUT, cwd=folder
        )
        try:
            while _status(port, b"", {}) in (0, 503) or _status(port, head + ROWS.tobytes(), headers) != 200:
                if process.poll() is not None or time.perf_counter() - begin > 120:
                    log.seek(0)
                    raise SystemExit(f"the server did not answer:\n{log.read()}")
                time.sleep(0.005)
            seconds, busy, resident = time.perf_counter() - begin, _busy(process.pid), _resident(process.pid)
            while not ready.exists() and process.poll() is None:
                time.sleep(0.05)
            return {
                "first_answer_seconds": seconds,
                "processor_seconds": busy,
                "resident_mib": resident,
                "ready_seconds": time.perf_counter() - begin,
                "resident_when_ready_mib": _resident(process.pid),
            }
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(60)


def _status(port: int, body: bytes, headers: dict[str, str]) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request("POST", f"/v2/models/{NAME}/infer", body, headers)
        response = connection.getresponse()
        response.read()
        return response.status
    except OSError:
        return 0
    finally:
        connection.close()


def _busy(process: int) -> float:
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _resident(process: int) -> float:
    return int(Path(f"/proc/{process}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / MIB


def installed_mib(python: str) -> float:
    """What the environment's site-packages take on disk, pip included."""
    where = subprocess.run(
        [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"], capture_output=True, text=True, check=True
    )
    files = [path for path in Path(where.stdout.strip()).rglob("*") if path.is_file() and not path.is_symlink()]
    return sum(path.stat().st_blocks * 512 for path in files) / MIB


def main() -> None:
    """Measure, and print the medians as JSON."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--python", default=sys.executable, help="of the environment that serves; by default this one")
    parser.add_argument("--models", type=Path, help="a model repository with resnet18; by default one is made")
    parser.add_argument("--runs", type=int, default=5)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as made:
        models = given.models or Path(made) / "models"
        if given.models is None:
            package(models)
        runs = [first_answer(given.python, models.resolve()) for _ in range(given.runs)]
        model = (models / NAME / "1" / "model.onnx").stat().st_size / MIB
    found = {name: round(statistics.median(run[name] for run in runs), 2) for name in runs[0]}
    beside = {name: round(found[name] - model, 1) for name in ("resident_mib", "resident_when_ready_mib")}
    print(
        json.dumps(
            {**found, "beside_the_model": beside, "installed_mib": round(installed_mib(given.python)), "runs": runs}, indent=1
        )
    )


if __name__ == "__main__":
    main()
