"""How long `headrace serve WHAT` takes to its first right answer, with an empty cache and again with what the first run left.

    python -m tests.benchmarks.serving.by_name [WHAT]

By default a ResNet-50 of timm whose weights lie in a file. Beside the seconds by the clock stand those of the processors, of
all processes until the answer: on a machine that does something else, half of them are what two cores of their own would need
at least.
"""

from __future__ import annotations

import io
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path

import psutil
from PIL import Image


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        what = sys.argv[1] if len(sys.argv) > 1 else resnet50(Path(folder))
        runs = {name: first_answer(what, Path(folder) / "cache") for name in ("cold", "again")}
        print(json.dumps({"what": what.partition("/")[0], "load": os.getloadavg(), **runs}, indent=1))


def resnet50(folder: Path) -> str:
    import timm
    import torch

    torch.manual_seed(0)
    torch.save(timm.create_model("resnet50").state_dict(), folder / "resnet50.pth")
    return f"timm:resnet50:{folder / 'resnet50.pth'}"


def first_answer(what: str, cache: Path) -> dict[str, float]:
    """Seconds from the start of the command to the answer for one image, and those of the processors."""
    data = io.BytesIO()
    Image.effect_noise((640, 480), 80).convert("RGB").save(data, "JPEG")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    name = what.split(":")[1].partition(".")[0] if ":" in what else Path(what).stem
    command = [sys.executable, "-m", "headrace", "serve", what, "--cache", str(cache), "--http-port", str(port)]
    started = time.monotonic()
    server = subprocess.Popen([*command, "--grpc-port", "0", "--metrics-port", "0"], stdout=subprocess.DEVNULL)
    url = f"http://127.0.0.1:{port}/v1/classify/{name}"
    request = urllib.request.Request(url, data.getvalue(), {"Content-Type": "image/jpeg"})
    try:
        while True:
            try:
                with urllib.request.urlopen(request, timeout=60) as answer:
                    assert json.load(answer)
                break
            except (urllib.error.URLError, OSError):
                assert server.poll() is None, "the server has ended"
                time.sleep(0.05)
        seconds = time.monotonic() - started
        times = psutil.Process(server.pid).cpu_times()
        return {"seconds": round(seconds, 2), "processor_seconds": round(sum(times[:4]), 2)}
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait(120)


if __name__ == "__main__":
    main()
