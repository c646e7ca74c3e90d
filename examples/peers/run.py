"""Headrace beside other servers of the same model: each started by itself, driven in turn by the same load generator.

    python examples/peers/run.py MODELS --baseline REPO [--session headrace] [--peers litserve,ray] [--out DIR]

`make peers` installs each peer in an environment of its own under build/peers; those that are not there are left out, said so.
`headrace bench REPO --peers` measures them all beside frameworks by hand, too.
"""

import argparse
from pathlib import Path

from rich.console import Console

from headrace.migrate.resolving.resolve import resolve
from headrace.migrate.survey.survey import survey
from headrace.serving.bench.peers import SESSIONS, peers_in
from headrace.serving.bench.run import BenchConfig, bench
from headrace.serving.bench.subject import only_model

HERE = Path(__file__).resolve().parent


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("models", type=Path, help="the folder that headrace migrate wrote, with one model")
    parser.add_argument("--baseline", type=Path, required=True, help="the repository of the model")
    parser.add_argument("--session", choices=SESSIONS, default="onnxruntime", help="what the peers run")
    parser.add_argument("--peers", help="which ones, with commas between; by default all")
    parser.add_argument("--concurrency", type=int, default=16)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path("build/bench-peers"))
    given = parser.parse_args()
    console = Console(soft_wrap=True)
    names = given.peers.split(",") if given.peers else None
    peers, absent = peers_in(HERE, given.models / only_model(given.models), session=given.session, names=names)
    for name, why in absent.items():
        console.print(f"{name} is left out: {why}")
    bench(
        BenchConfig(
            models=given.models, out=given.out, baseline=resolve(survey(given.baseline)).recipe.to_json(), peers=peers,
            concurrency=(given.concurrency,), seconds=given.seconds, rounds=given.rounds,
        ),
        console=console,
    )  # fmt: skip


if __name__ == "__main__":
    main()
