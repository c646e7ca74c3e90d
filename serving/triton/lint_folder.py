"""What lies in a model's folder: its name, versions, files and labels."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from ...runtime.artifact.model_config import FILE
from ...runtime.artifact.package import DECODER
from .finding import Finding, error, warning
from .subject import ModelFolder, Repository

_MOST_LABEL_BYTES = 16 << 20

# The file that each backend opens where the configuration names none. Triton has more backends; these are told from mistakes.
DEFAULT_FILES = {
    "onnxruntime": "model.onnx",
    "tensorrt": "model.plan",
    "python": "model.py",
    "pytorch": "model.pt",
    "openvino": "model.xml",
    "tensorflow": "",
    "dali": "model.dali",
    "identity": "",
    "vllm": "model.json",
}


def check(model: ModelFolder, repository: Repository) -> Iterator[Finding]:
    """Triton's model_repository_manager and model_lifecycle."""
    config, name = model.config, model.name
    if config.name not in ("", name):
        yield error("TR002", "name", f"it is {config.name!r}, the folder is {name!r}; Triton wants them equal")
    yield from _versions(model)
    yield from _backend(model)
    yield from _code(model)
    yield from _labels(model)


def _versions(model: ModelFolder) -> Iterator[Finding]:
    found, name = model.versions, model.name
    for entry in sorted(model.folder.iterdir()):
        looks = entry.name.lstrip("vV")
        if entry.is_dir() and looks.isdecimal() and (looks != entry.name or (looks != "0" and looks.startswith("0"))):
            yield warning(
                "TR003", entry.name, f"Triton passes over this folder; call it {int(looks) or 1} to make it a version"
            )
    if not found:
        yield error("TR003", name, "there is no version folder; put the model's files into a folder called 1")
        return
    if 0 in found:
        yield warning("TR003", "0", "the embedded server counts versions from 1; call the folder 1")
    policy = model.config.version_policy
    kind = policy.WhichOneof("policy_choice")
    if kind == "specific" and (absent := sorted(set(policy.specific.versions) - set(found))):
        yield error("TR004", "version_policy", f"version {absent[0]} is not there; the folder has {_listed(found)}")
    if kind == "latest" and policy.latest.num_versions == 0:
        yield error("TR004", "version_policy", "latest 0 versions are none; give num_versions: 1 or more")


def _code(model: ModelFolder) -> Iterator[Finding]:
    """Whoever wrote a package may have written code into it, which Triton runs with its own rights."""
    foreign = [path for path in model.folder.rglob("libtriton_*") if path.is_file()]
    if model.backend == "python":
        own = [path.read_bytes() for path in DECODER]
        code = [path for path in model.folder.rglob("*") if path.suffix in (".py", ".pyc", ".so") and path.is_file()]
        foreign += [path for path in code if path.read_bytes() not in own]
    for path in sorted(foreign):
        place = path.relative_to(model.folder).as_posix()
        # Triton's Python keeps what it compiled beside the source, whatever the environment says, and runs that the next time.
        why = (
            "Triton runs it in place of its source, and whether it was made of that cannot be told: delete it; Triton, which "
            "leaves such files wherever it may write, makes it again"
            if path.suffix == ".pyc"
            else "it is not this Headrace's own code, and Triton runs it: read it, or package the model again"
        )
        yield warning("TR019", place, why)


def _backend(model: ModelFolder) -> Iterator[Finding]:
    backend = model.backend
    if not backend:
        # Triton guesses from the names of the files.
        guessed = [key for key, file in DEFAULT_FILES.items() if file and any(model.folder.glob(f"*/{file}"))]
        report, then = (warning, f"Triton guesses {guessed[0]}") if guessed else (error, "no file tells which it is")
        yield report("TR006", "backend", f'neither backend nor platform is given; {then}; write backend: "onnxruntime"')
    elif backend == "headrace":
        yield error(
            "TR006",
            "backend",
            "the model has no ONNX graph, only the embedded server runs it; its headrace.json says why under no_portable_graph",
        )
    elif model.is_ensemble:
        if model.config.backend:
            yield error("TR006", "backend", 'an ensemble has platform: "ensemble" and no backend')
    elif backend not in DEFAULT_FILES:
        yield error("TR006", "backend", f"Triton's images bring no backend {backend!r}; known are {', '.join(DEFAULT_FILES)}")
    else:
        file = model.config.default_model_filename or DEFAULT_FILES[backend]
        for version in model.wanted_versions if file else ():
            if not (model.folder / str(version) / file).exists():
                harm = "; a python model without its file keeps all of Triton 2.51 from serving" if backend == "python" else ""
                yield error("TR005", f"{version}/{file}", f"the file is missing{harm}; package the model again")


def _labels(model: ModelFolder) -> Iterator[Finding]:
    for index, output in enumerate(model.config.output):
        where = f"output[{index}].label_filename"
        if not output.label_filename:
            continue
        path = model.folder / output.label_filename
        if not path.is_file():
            yield error("TR012", where, f"{output.label_filename!r} is not in the model's folder")
            continue
        if path.stat().st_size > _MOST_LABEL_BYTES:
            yield error(
                "TR012", where, f"{output.label_filename} is larger than {_MOST_LABEL_BYTES:,} bytes; it holds no labels"
            )
            continue
        lines, classes = len(path.read_bytes().splitlines()), prod(output.dims)
        if classes > 0 and lines != classes:
            yield warning("TR012", where, f"{output.label_filename} has {lines} labels for {classes} classes; give one each")


def _listed(versions: list[int]) -> str:
    return ", ".join(map(str, versions)) or f"none, see {FILE}"
