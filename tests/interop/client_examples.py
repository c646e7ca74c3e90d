"""NVIDIA's own client examples, run unchanged against this server.

    git clone https://github.com/triton-inference-server/client CHECKOUT
    python -m tests.interop.client_examples CHECKOUT

Nothing of the checkout is copied. The exit status is 1 where an example ends otherwise than `OTHER` says: those it names need
what a server of image classifiers has not, and every other one must pass.
"""

from __future__ import annotations

import argparse
import http.client
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from headrace.serving.bench.servers import Server, terminate_as_exit
from headrace.serving.bench.services import headrace_service
from tests.serving.conftest import Repository, photo

from .models import arithmetic, identity, unpackaged

SEQUENCES = "sequences: these models keep no state between requests"
# By what an example's name holds, why it cannot pass.
OTHER = {
    "cudashm": "CUDA shared memory",
    "custom_repeat": "a decoupled model, which gives several answers to a request",
    "sequence": SEQUENCES,
    "memory_growth": "port 8000, which something else has",
}
# What else stands on a command line, PHOTO for one. Over HTTP image_client.py needs attrdict.
ARGUMENTS = {
    "image_client": ("-i", "grpc", "-m", "photos", "-s", "INCEPTION", "-c", "3", "PHOTO"),
    "grpc_image_client": ("-m", "photos", "-s", "INCEPTION", "-c", "3", "PHOTO"),
    "ensemble_image_client": ("-m", "photos_classify", "-c", "3", "PHOTO"),
}
_SECONDS = 120
# simple_http_model_control.py counts the models of the repository that it was written for.
_MODELS = 7
# Models that are made when these examples' turn comes, since simple_http_model_control.py counts seven and
# simple_grpc_model_control.py eight.
_LATER: dict[str, tuple[str, Callable[..., None]]] = {
    "string_infer_client": ("simple_identity", partial(identity, dtype="object", write=unpackaged)),
    "grpc_client": (
        "densenet_onnx",
        partial(identity, dtype="float32", row=(3, 224, 224), names=("data_0", "fc6_1"), max_batch_size=0, write=unpackaged),
    ),
}
_LAST = ("http_model_control", "string_infer_client", "grpc_model_control", "grpc_client")


def free(port: int) -> bool:
    with socket.socket() as own:
        own.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            own.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def load(model: str, port: int) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=_SECONDS)
    connection.request("POST", f"/v2/repository/models/{model}/load")
    answer = connection.getresponse()
    assert answer.status == 200, answer.read()
    connection.close()


def run(example: Path, ports: dict[str, int], photo: Path) -> tuple[bool, str]:
    """Whether it passed, and what it said last."""
    protocol = "http" if "http" in example.name or example.name.startswith(("reuse", "ensemble")) else "grpc"
    command = [sys.executable, str(example)]
    if "memory_growth" not in example.name:  # which takes no address
        command += ["-u", f"127.0.0.1:{ports[protocol]}"]
    command += [str(photo) if word == "PHOTO" else word for word in ARGUMENTS.get(example.stem, ())]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return False, f"still ran after {_SECONDS} s"
    said = (done.stdout + done.stderr).strip().splitlines() or ["nothing"]
    return done.returncode == 0, said[-1]


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.interop.client_examples", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("checkout", type=Path, help="of NVIDIA's client repository")
    chosen = parser.parse_args(arguments)
    examples = sorted((chosen.checkout / "src" / "python" / "examples").glob("*.py"))
    if not examples:
        parser.error(f"{chosen.checkout} has no src/python/examples")
    outcomes: dict[str, list[str]] = {"passes": []}
    wrong = []
    with terminate_as_exit(), tempfile.TemporaryDirectory(prefix="headrace-interop-") as name:
        folder = Path(name)
        photos = Repository(folder)
        photos.package("photos")  # with its decoder and ensemble, it is three of those that are counted
        (folder / "photo.png").write_bytes(photo(1, size=(200, 150)))
        (folder / "scratch").mkdir()
        arithmetic(photos.path, "simple", folder / "scratch")
        arithmetic(photos.path, "simple_int8", folder / "scratch", dtype="int8")
        arithmetic(photos.path, "simple_string", folder / "scratch", dtype="object", write=unpackaged)
        identity(photos.path, "custom_identity_int32", folder / "scratch")
        for number in range(_MODELS - len(list(photos.path.iterdir()))):
            arithmetic(photos.path, f"another{number}", folder / "scratch")
        options = [
            "--model-control-mode",
            "explicit",
            "--load-model",
            "*",
            "--shared-memory",
            "--instances",
            "1",
            "--id",
            "triton",
        ]
        if free(8000):
            options += ["--http-port", "8000"]
            del OTHER["memory_growth"]
        with Server(headrace_service(photos.path, "", options=options), folder=folder, timeout_seconds=300) as server:
            server.wait_ready()
            for example in sorted(examples, key=lambda path: [path.stem.endswith(part) for part in reversed(_LAST)]):
                for part, (model, make) in _LATER.items():
                    if example.stem.endswith(part) and not (photos.path / model).exists():
                        make(photos.path, model, folder / "scratch")
                        load(model, server.ready["http"])
                passed, said = run(example, server.ready, folder / "photo.png")
                reason = next(
                    (why for part, why in OTHER.items() if part in example.name and example.stem not in ARGUMENTS), ""
                )
                outcomes.setdefault("passes" if passed else f"needs {reason}", []).append(example.stem)
                if passed == bool(reason):
                    wrong.append(f"{example.name}: {'passes, though it needs ' + reason if passed else said}")
    print(
        "\n".join(
            ("| | examples |", "|---|---|", *(f"| {what} | {', '.join(sorted(names))} |" for what, names in outcomes.items()))
        )
    )
    print(f"{len(outcomes['passes'])} of {len(examples)} pass", file=sys.stderr)
    for line in wrong:
        print(line, file=sys.stderr)
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
