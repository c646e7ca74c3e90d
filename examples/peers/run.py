"""Penstock beside other servers of the same model: each started by itself, driven in turn by the same load generator.

    python examples/peers/run.py MODELS --baseline REPO [--session penstock] [--peers litserve,ray] [--out DIR]

`make peers` installs each peer in an environment of its own under build/peers; those that are not there are left out, said so.
"""

import argparse
from pathlib import Path

from rich.console import Console

from penstock.migrate.resolving.resolve import resolve
from penstock.migrate.survey.survey import survey
from penstock.serving.bench.run import BenchConfig, bench
from penstock.serving.bench.servers import Contender
from penstock.serving.bench.subject import only_model

HERE = Path(__file__).resolve().parent
ENVIRONMENTS = HERE.parents[1] / "build" / "peers"
# Where each takes an image, and how.
ROUTES = {
    "litserve": ("/predict", "form", "image"),
    "bentoml": ("/classify", "form", "images"),
    "ray": ("/", "body", ""),
    "mlserver": ("/v2/models/classifier/infer", "v2", "image"),
    "pytriton": ("/v2/models/classifier/infer", "v2-binary", "image"),
}


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("models", type=Path, help="the folder that penstock migrate wrote, with one model")
    parser.add_argument("--baseline", type=Path, required=True, help="the repository of the model")
    parser.add_argument("--session", choices=["onnxruntime", "penstock"], default="onnxruntime", help="what the peers run")
    parser.add_argument("--peers", default=",".join(ROUTES), help="which ones, with commas between")
    parser.add_argument("--concurrency", type=int, default=16)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path("build/bench-peers"))
    given = parser.parse_args()
    console = Console(soft_wrap=True)
    model = given.models / only_model(given.models)
    peers = []
    for name in given.peers.split(","):
        path, encoding, field = ROUTES[name]
        python = ENVIRONMENTS / name / "bin" / "python"
        if not python.exists():
            console.print(f"{name} is not installed; `make peers` does that")
            continue
        command = (str(python), str(HERE / f"{name}_service.py"), "--model", str(model.resolve()), "--session", given.session)
        peers.append(
            Contender(name=name, command=(*command, "--ready-file", "{ready}"), path=path, encoding=encoding, field=field)
        )
    bench(
        BenchConfig(
            models=given.models, out=given.out, baseline=resolve(survey(given.baseline)).recipe, peers=tuple(peers),
            concurrency=(given.concurrency,), seconds=given.seconds, rounds=given.rounds,
        ),
        console=console,
    )  # fmt: skip


if __name__ == "__main__":
    main()
