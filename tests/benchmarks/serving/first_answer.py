"""How long after its start `headrace serve` gives its first answer, how much memory it takes, and what it comes to choose.

    python tests/benchmarks/serving/first_answer.py [--model resnet50] [--starts 10] [--memory MIB] [--python VENV/bin/python]

--python names an environment with `pip install 'headrace[serve]'`, whose size is told too. The model, a ResNet-18 in fp32 by
ONNX Runtime or a ResNet-50 in int8 by OpenVINO with its preprocessing, is made by this checkout's own environment, which has
torch (the second takes minutes), unless --models names a repository that has it. Every start is a process of its own.

Starts are cold, with nothing in the cache, and then warm. The first answer is that of a single row, or photo, over HTTP, asked
for once the model answers; a bodiless request finds that out every 5 ms (503 while it is loading, then 400). Processor time is
told too: on a busy machine it is the steadier figure. Memory is what is resident after the first answer, when the server is
ready, and after 50 requests by one connection and 500 by 16. Then those 16 go on for --seconds, so that what is tried beside
the first session is decided, and the metrics say what was chosen.
"""

from __future__ import annotations

import argparse
import array
import collections
import http.client
import io
import json
import os
import random
import re
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

SIDE, MIB, CONNECTIONS = 224, 1 << 20, 16


def package_resnet50(folder: Path) -> None:
    """In int8 by OpenVINO, for photos, with its head fitted to what tells images apart."""
    sys.path.insert(0, str(Path(__file__).parents[2]))
    import torch
    from benchmarks.models import ResNet, fitted, textures

    import headrace
    from headrace.specs import CenterCrop, Preprocessing, Resize

    torch.manual_seed(0)
    model = fitted(ResNet((3, 4, 6, 3)).eval(), SIDE, count=96)
    images, _ = textures(288, SIDE, seed=5)
    config = headrace.GraphConfig(precision="int8", backend="openvino", max_tuning_seconds=120)
    graph = headrace.compile(model, torch.rand(2, 3, SIDE, SIDE), images=images, config=config)
    geometry = (Resize(size=256), CenterCrop(size=(SIDE, SIDE)))
    mean, std = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
    graph.save(folder / "resnet50", preprocessing=Preprocessing(geometry=geometry, mean=mean, std=std))


def package_resnet18(folder: Path) -> None:
    """In fp32 by ONNX Runtime, compiled and packaged as `headrace compile` does."""
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
    headrace.compile(model, torch.rand(2, 3, SIDE, SIDE), config=config).save(folder / "resnet18")


def requests_for(models: Path, name: str) -> list[tuple[str, bytes, dict[str, str]]]:
    """Path, body and headers of some requests: photos where the model takes those, else a row."""
    manifest = json.loads((models / name / "1" / "headrace.json").read_text())
    if manifest["preprocessing"] is None:
        rows = (array.array("f", [0.5]) * (3 * SIDE * SIDE)).tobytes()
        tensor = {"name": manifest["signature"]["inputs"][0]["name"], "datatype": "FP32", "shape": [1, 3, SIDE, SIDE]}
        head = json.dumps({"inputs": [{**tensor, "parameters": {"binary_data_size": len(rows)}}]}).encode()
        return [(f"/v2/models/{name}/infer", head + rows, {"Inference-Header-Content-Length": str(len(head))})]
    from PIL import Image

    made = []
    for seed in range(32):
        data = io.BytesIO()
        pixels = random.Random(seed).randbytes(3 * 16 * 12)
        Image.frombytes("RGB", (16, 12), pixels).resize((500, 375), Image.Resampling.BICUBIC).save(data, "JPEG", quality=90)
        made.append((f"/v1/classify/{name}", data.getvalue(), {"Content-Type": "image/jpeg"}))
    return made


class Server:
    """One `headrace serve` of a repository with so many MiB for what it tries, and what it keeps in `cache`."""

    def __init__(self, python: str, models: Path, name: str, folder: Path, cache: Path, memory: int | None) -> None:
        with socket.create_server(("127.0.0.1", 0)) as one, socket.create_server(("127.0.0.1", 0)) as other:
            self.port, self.metrics = one.getsockname()[1], other.getsockname()[1]
        self.name, self.ready_file, self.log = name, folder / "ready.json", folder / "log"
        self.requests = requests_for(models, name)
        command = [python, "-m", "headrace", "serve", str(models), f"--http-port={self.port}", "--frontends=0", "--grpc-port=0"]
        command += [f"--metrics-port={self.metrics}", f"--ready-file={self.ready_file}"]
        command += [] if memory is None else [f"--memory={memory}"]
        self.ready_file.unlink(missing_ok=True)
        self.begin = time.perf_counter()
        with self.log.open("w") as log:
            environment = {**os.environ, "HEADRACE_CACHE": str(cache)}
            self.process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, cwd=folder, env=environment)

    def first_answer(self) -> float:
        """Seconds from the start to the first answer."""
        path, body, headers = self.requests[0]
        while self.status(path, b"", {}) in (0, 503) or self.status(path, body, headers) != 200:
            self.alive()
            time.sleep(0.005)
        return time.perf_counter() - self.begin

    def ready(self) -> float:
        """Seconds from the start until every model is ready."""
        while not self.ready_file.exists():
            self.alive()
            time.sleep(0.05)
        return time.perf_counter() - self.begin

    def alive(self) -> None:
        if self.process.poll() is not None or time.perf_counter() - self.begin > 300:
            raise SystemExit(f"the server did not answer:\n{self.log.read_text()}")

    def load(self, connections: int, *, requests: int = 0, seconds: float = 0.0) -> float:
        """So many requests, or so many seconds of them, and those a second that were answered."""
        begin = time.perf_counter()

        def client(seed: int) -> int:
            draw, done = random.Random(seed), 0
            connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
            while done < requests / connections or time.perf_counter() < begin + seconds:
                connection.request("POST", *draw.choice(self.requests))
                answer = connection.getresponse()
                answer.read()
                if answer.status != 200:
                    raise SystemExit(f"the server answered {answer.status}:\n{self.log.read_text()}")
                done += 1
            return done

        with ThreadPoolExecutor(connections) as pool:
            return sum(pool.map(client, range(connections))) / (time.perf_counter() - begin)

    def chosen(self) -> str:
        """The instances that serve, and what became of what was tried, by the metrics."""
        connection = http.client.HTTPConnection("127.0.0.1", self.metrics, timeout=60)
        connection.request("GET", "/metrics")
        text = connection.getresponse().read().decode()
        instances = re.search(r"^headrace_instances{.*} (\d+)", text, re.M)
        tried = re.findall(r'^headrace_improvements_total{.*outcome="(\w+)",tried="([\w ]+)".*} (\d+)', text, re.M)
        outcomes = [f"{count} {what} {outcome}" for outcome, what, count in sorted(tried)]
        return ", ".join([f"{instances[1] if instances else '?'} instance(s)", *outcomes])

    def status(self, path: str, body: bytes, headers: dict[str, str]) -> int:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            connection.request("POST", path, body, headers)
            response = connection.getresponse()
            response.read()
            return response.status
        except OSError:
            return 0
        finally:
            connection.close()

    def busy(self) -> float:
        """Processor seconds so far."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def resident(self) -> float:
        """MiB."""
        return int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / MIB

    def stop(self) -> float:
        """Seconds that a SIGTERM takes."""
        begin = time.perf_counter()
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(120)
        return time.perf_counter() - begin


def start(server: Server, seconds: float) -> dict[str, Any]:
    """What one start shows, from the first answer to the end."""
    found: dict[str, Any] = {}
    try:
        found["first_answer_seconds"] = server.first_answer()
        found["processor_seconds"], found["resident_mib"] = server.busy(), server.resident()
        found["ready_seconds"], found["resident_when_ready_mib"] = server.ready(), server.resident()
        server.load(1, requests=50)
        found["resident_after_50_mib"] = server.resident()
        server.load(CONNECTIONS, requests=500)
        found["resident_after_500_mib"] = server.resident()
        found["requests_per_second"] = server.load(CONNECTIONS, seconds=seconds)
        found["resident_at_the_end_mib"], found["chosen"] = server.resident(), server.chosen()
    finally:
        found["stop_seconds"] = server.stop()
    return found


def installed_mib(python: str) -> float:
    """What the environment's site-packages take on disk, pip included."""
    where = subprocess.run(
        [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"], capture_output=True, text=True, check=True
    )
    files = [path for path in Path(where.stdout.strip()).rglob("*") if path.is_file() and not path.is_symlink()]
    return sum(path.stat().st_blocks * 512 for path in files) / MIB


def medians(runs: list[dict[str, Any]]) -> dict[str, float]:
    """Of every figure."""
    names = [name for name, value in runs[0].items() if isinstance(value, float)]
    return {name: round(statistics.median(run[name] for run in runs), 2) for name in names}


def main() -> None:
    """Measure, and print the medians as JSON."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--python", default=sys.executable, help="of the environment that serves; by default this one")
    parser.add_argument("--model", choices=("resnet18", "resnet50"), default="resnet18")
    parser.add_argument("--models", type=Path, help="a model repository that has it; by default one is made")
    parser.add_argument("--starts", type=int, default=5, help="cold ones, and as many warm ones")
    parser.add_argument("--seconds", type=float, default=20.0, help="of traffic by which choices are made, per start")
    parser.add_argument("--memory", type=int, help="MiB, as of headrace serve")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as made:
        folder, cache = Path(made), Path(made) / "cache"
        models = given.models or folder / "models"
        if given.models is None:
            (package_resnet50 if given.model == "resnet50" else package_resnet18)(models)
        runs: dict[str, list[dict[str, Any]]] = {"cold": [], "warm": []}
        for _ in range(given.starts):
            shutil.rmtree(cache, ignore_errors=True)
            for kind, found in runs.items():
                server = Server(given.python, models.resolve(), given.model, folder, cache, given.memory)
                found.append(start(server, given.seconds))
                print(json.dumps({kind: found[-1]}), file=sys.stderr, flush=True)
    chosen = collections.Counter(run["chosen"] for found in runs.values() for run in found)
    report = {kind: medians(found) for kind, found in runs.items()}
    print(json.dumps({**report, "chosen": chosen, "installed_mib": round(installed_mib(given.python)), "runs": runs}, indent=1))


if __name__ == "__main__":
    main()
