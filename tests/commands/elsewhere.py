"""The commands of the pages that cannot run where the tests do, why, and what runs them instead."""

from __future__ import annotations

import re
from dataclasses import dataclass

from tests.commands.pages import Command


@dataclass(frozen=True)
class Elsewhere:
    """Commands in which `pattern` is found, on pages below `pages`; `instead` is a target of the Makefile or a test's file.

    Those of `make test-all` run as the others do, but there alone, since they are dear.
    """

    pattern: str
    reason: str
    instead: str
    pages: str = ""

    @property
    def dear(self) -> bool:
        return self.instead == "make test-all"

    def holds(self, command: Command) -> bool:
        return str(command.page).startswith(self.pages) and re.search(self.pattern, command.text) is not None


# The first row that holds counts.
ELSEWHERE = (
    Elsewhere(r"^pip install ", "the package index, and an environment of its own", "tests/test_install.py"),
    Elsewhere(r"^make ", "the project's own targets, of minutes to hours", "tests/commands/test_commands.py"),
    Elsewhere(r"^(\w+=\S+ )*docker ", "a Docker engine", "make test-docker"),
    Elsewhere(r"^kubectl ", "a cluster", "make lint-docker"),
    Elsewhere(r"^ray |^headrace .*--ray\b", "a Ray cluster", "make test-ray"),
    Elsewhere(r"\b(timm|torchvision|hf):", "timm, torchvision or transformers, and weights from the network", "make names"),
    Elsewhere(r"\bs3://", "an object store; any address goes the same way", "tests/serving/offline/test_locations.py"),
    Elsewhere(r"https://", "the network", "tests/serving/predict/test_download.py"),
    Elsewhere(r"^headrace triton (install|run|verify)\b", "a real Triton, of 350 MB", "make test-triton"),
    Elsewhere(r"--devices ", "several GPUs", "make bench-gpu"),
    Elsewhere(r"^python3? tests/benchmarks/gpu ", "a GPU", "make bench-gpu"),
    Elsewhere(r"--mesh 2x4 ", "eight ranks, each of which imports torch", "make test-all"),
    Elsewhere(r"^headrace (split |serve (split|pipeline)\b)", "processes for ranks and stages, 4 CPU seconds", "make test-all"),
    Elsewhere(r"path/to/api ", "tests/migrate/test_other_servers.py has the same server", "make test-all"),
    Elsewhere(r"^python by_hand\.py|run .*training/fit\.py", "training is compiled, as in runtime/training", "make test-all"),
    Elsewhere(r"--out labels-of-(files|tar)", "tests/serving/offline has files, archives and buckets", "make test-all"),
    Elsewhere(r"^headrace bench .*--baseline", "a service of torch's beside ours, 20 seconds", "make test-all"),
    Elsewhere(r"^headrace (migrate .*--write|undo )", "a whole migration once more", "make test-all", "docs/migrate.md"),
    Elsewhere(r"^headrace bench .*--formats", "all backends in all precisions, 40 CPU seconds", "make test-all"),
    Elsewhere(r"path/to/flask-app|build/app/", "a whole migration and 24 requests, 8 CPU seconds", "make test-all"),
    Elsewhere(r"localhost:(50|8080)", "an endpoint that the reader wrote", "tests/serving/verify/test_verify.py"),
    Elsewhere(r"tests/open_cases/", "checked out repositories of others", "make open-cases-setup"),
    Elsewhere(r"^pytest ", "tests are run by themselves", "make test"),
    Elsewhere(r"^python (prepare|train|evaluate|predict)\.py", "training", "tests/examples/test_demo.py", "examples/"),
)  # fmt: skip
