"""Libraries that are not installed: experiment trackers and counters do nothing, apex is torch's own, others import only."""

from __future__ import annotations

import ast
import contextlib
import importlib.abc
import importlib.machinery
import importlib.metadata
import importlib.util
import linecache
import os
import re
import sys
import traceback
import types
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from ....survey.submodules import missing_paths
from ...stub_modules import AbsentLibrary, AbsentName, install_stub
from .. import other_python, project_root
from ..places import failed_at, imported_by_library, is_installed, is_users
from ..settings.environment import holding
from ..silent import Config, Silent, kept_in_files
from ..stage import Stage
from .packages import EVERYWHERE, Alias, file_of, folders_of, missing_module

SILENT = frozenset([
    "aim", "alive_progress", "clearml", "codecarbon", "comet_ml", "dvclive", "flask_cors", "fvcore", "livelossplot",
    "loguru", "mlflow", "neptune", "nvidia_smi", "progress", "progressbar", "ptflops", "pthflops", "pynvml",
    "setproctitle", "swanlab", "telegram", "tensorboard", "tensorboard_logger", "tensorboardX", "thop", "torchinfo",
    "torchstat", "torchsummary", "torchsummaryX", "torchviz", "trackio", "visdom", "wandb",
])  # fmt: skip
"""Libraries that watch a script, or what is asked of it, and give nothing back that its results depend on."""
OWNS = frozenset([
    "accelerate", "albumentations", "catalyst", "datasets", "dotenv", "efficientnet_pytorch", "fastai", "gin", "hydra",
    "ignite", "kornia", "lightning", "ml_collections", "mmcls", "mmcv", "mmengine", "mmpretrain", "monai", "omegaconf", "peft",
    "pretrainedmodels", "pytorch_lightning", "timm", "torchvision", "transformers", "ultralytics", "yacs",
])  # fmt: skip
"""Libraries that hold a script's model, its data or its configuration, or own its loop: nothing stands in for their use."""
OTHERS = frozenset(["flax", "jax", "keras", "mindspore", "mxnet", "paddle", "tensorflow", "tf_keras", "tflite_runtime"])
"""Libraries whose models are no PyTorch's: with them installed, the script would show none that can be migrated."""
_HOSTS = frozenset(["google.colab", "kaggle_datasets", "kaggle_secrets", "kaggle_web_client"])
"""Modules of services that run notebooks: they are there and nowhere else, and no index has them."""
_NAMES = (("lightning.pytorch", "pytorch_lightning"), ("lightning.fabric", "lightning_fabric"))
"""One library under two names: people have one installed, and scripts import either."""
_USED = r"of which ([\w.]+) is used|^([\w.]+) is not in the installed"
"""How the use of what can be imported and not used is told."""
_RECORDS = re.compile(r"metric|logg|callback|profil|visual|plot|progress|summar|report|track", re.I)
"""Parts of libraries that keep records."""
_DISTRIBUTIONS = {
    "PIL": "pillow", "bs4": "beautifulsoup4", "cv2": "opencv-python", "dotenv": "python-dotenv", "fitz": "pymupdf",
    "git": "gitpython", "hydra": "hydra-core", "jwt": "pyjwt", "mpl_toolkits": "matplotlib", "pl_bolts": "lightning-bolts",
    "skimage": "scikit-image", "sklearn": "scikit-learn", "skopt": "scikit-optimize", "yaml": "pyyaml",
}  # fmt: skip
"""Names under which libraries are installed, where they are others than they are imported by."""
_COMMON = frozenset([
    "boto3", "click", "einops", "fastapi", "fire", "flask", "gradio", "h5py", "httpx", "imageio", "jinja2", "joblib",
    "lightgbm", "matplotlib", "numba", "numpy", "onnx", "onnxruntime", "pandas", "plotly", "polars", "psutil", "pyarrow",
    "pydantic", "pydicom", "redis", "requests", "rich", "scipy", "seaborn", "sqlalchemy", "statsmodels", "streamlit",
    "tabulate", "tifffile", "torchmetrics", "tqdm", "uvicorn", "xgboost",
])  # fmt: skip
"""Others that everybody means by these names."""
ENVIRONMENT = {
    "WANDB_MODE": "disabled",
    "WANDB_SILENT": "true",
    "COMET_MODE": "disabled",
    "NEPTUNE_MODE": "offline",
    "HYDRA_FULL_ERROR": "1",
}
"""So that trackers reach nobody, and an error in a script of Hydra's comes out as it is."""


@contextlib.contextmanager
def stand_in(stage: Stage) -> Iterator[None]:
    finders = list(sys.meta_path)
    modules = set(sys.modules)
    finder = _Finder(stage)
    if importlib.util.find_spec("tensorboard") is None:
        sys.meta_path.insert(0, _Tensorboard(finder))
    sys.meta_path.append(finder)
    sys.meta_path.insert(0, _OtherName(stage))
    for name in stage.learned.get("absent", ()):
        if name in stage.learned.get("used", ()):
            continue
        # An installed library that asks for it does without it: pandas would take a stub of pytz for a version that it lacks.
        unless = None if name in stage.learned.get("within", ()) else imported_by_library
        if "." in name:  # a part of a namespace that several distributions share: google.genai
            sys.meta_path.append(AbsentLibrary(name, unless))
            stage.note("libraries", f"{_distribution(name)} is not installed; it can be imported and not used")
        elif install_stub(ModuleNotFoundError(name, name=name), stage.root, unless):
            stage.note("libraries", f"{name} is not installed; it can be imported and not used")
    for part in stage.learned.get("gone", ()):
        if part not in stage.learned.get("used", ()):
            sys.meta_path.append(AbsentLibrary(part))
            _said_gone(stage, part)
    for part in stage.learned.get("left_out", ()):
        sys.meta_path.append(AbsentLibrary(part))
        stage.note("packages", f"{part} is imported and not in this copy; it can be imported and not used")
    for part in stage.learned.get("gone_names", ()):
        module, _, name = part.rpartition(".")
        made = Silent(part) if part in stage.learned.get("used", ()) else AbsentName(part)
        stage.when_imported(module, lambda found, name=name, made=made: stage.patch(found, name, made))  # type: ignore[misc]
        _said_gone(stage, part)
    for name in ("pytorch_lightning", "lightning.pytorch"):
        stage.when_imported(name, lambda library: _old_lightning(stage, library))
    kept_in_files(stage)
    with holding(ENVIRONMENT):
        yield
    sys.meta_path[:] = finders
    for name in set(sys.modules) - modules:
        if isinstance(sys.modules[name], _Module):
            del sys.modules[name]


def lesson(stage: Stage, error: BaseException) -> bool:
    """A library that is missing may be one that this run does not need, or one whose results the model does not need."""
    name = error.name if isinstance(error, ModuleNotFoundError) else None
    known = stage.learned.get("absent", [])
    part = re.search(_USED, str(error))
    if name is not None and part is not None:
        used = stage.learned.get("used", [])
        full = f"{part[part.lastindex or 0]}."
        gone = [item for item in _gone_parts(stage) if full.startswith(f"{item}.") and _RECORDS.search(item)]
        name = next((item for item in known if "." in item and full.startswith(f"{item}.")), name)
        silent = [name] if name in known and name not in OWNS else gone
        return any(item not in used for item in silent) and stage.learn("used", [*used, *silent])
    shared = _of_namespace(error)
    if shared is not None:
        return shared not in known and stage.learn("absent", [*known, shared])
    if isinstance(error, ImportError | AttributeError) and (name is None or "." in name):
        return _gone(stage, error)
    if name is None or name in known or part is not None or importlib.util.find_spec(name) is not None:
        return False
    passed = [frame.f_code.co_filename for frame, _ in traceback.walk_tb(error.__traceback__)]
    if any(is_installed(path) for path in passed[-1:]):
        stage.learn("within", [*stage.learned.get("within", []), name])
    return stage.learn(
        "absent", [*known, name, *(other for other in _also_absent(stage, error) if other not in (*known, name))]
    )


def _of_namespace(error: BaseException) -> str | None:
    """What an import lacks of a namespace that several distributions share, each with a part of its own; None for others."""
    found = re.match(r"cannot import name '(\w+)' from '([\w.]+)' \(unknown location\)", str(error))
    full = f"{found[2]}.{found[1]}" if found else getattr(error, "name", None) if "No module named" in str(error) else None
    above, _, _ = (full or "").rpartition(".")
    shared = sys.modules.get(above)
    folders = list(getattr(shared, "__path__", ())) if shared is not None and getattr(shared, "__file__", None) is None else []
    return full if folders and all(map(is_installed, folders)) else None


def _gone_parts(stage: Stage) -> list[str]:
    return [*stage.learned.get("gone", ()), *stage.learned.get("gone_names", ())]


def _also_absent(stage: Stage, error: BaseException) -> list[str]:
    """What else the file that could not import is going to miss, so that one attempt tells it all."""
    own = [frame for frame, _ in traceback.walk_tb(error.__traceback__) if is_users(frame.f_code.co_filename, stage.root)]
    names: dict[str, None] = {}
    with contextlib.suppress(SyntaxError):
        tree = ast.parse("".join(linecache.getlines(own[-1].f_code.co_filename)) if own else "")
        for node in tree.body:
            if isinstance(node, ast.Import):
                names |= dict.fromkeys(alias.name.partition(".")[0] for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                names[node.module.partition(".")[0]] = None
    return [name for name in names if name not in sys.modules and importlib.util.find_spec(name) is None]


def _gone(stage: Stage, error: BaseException) -> bool:
    """A part of an installed library that other versions of the library have."""
    part = re.match(r"No module named '([\w.]+)'$", str(error))
    name = re.match(r"cannot import name '(?P<name>\w+)' from '(?P<of>[\w.]+)'", str(error)) or re.match(
        r"module '(?P<of>[\w.]+)' has no attribute '(?P<name>\w+)'", str(error)
    )
    full = part[1] if part else f"{name['of']}.{name['name']}" if name else ""
    if part is not None and _is_left_out(stage.root, full):
        return stage.add("left_out", full)
    library = sys.modules.get(full.partition(".")[0])
    if library is None or is_users(str(getattr(library, "__file__", None) or stage.root + "/"), stage.root):
        return False
    return stage.add("gone" if part else "gone_names", full)


def _is_left_out(root: str, module: str) -> bool:
    """Whether a module is part of a package of the user's, and no file of the repository has its name: git ignores it, say."""
    try:
        spec = importlib.util.find_spec(module.partition(".")[0])
    except (ImportError, ValueError):
        return False
    folders = list(spec.submodule_search_locations or ()) if spec is not None else []
    own = bool(folders) and all(is_users(os.path.join(folder, "__init__.py"), root) for folder in folders)
    last = module.rpartition(".")[2]
    return own and not any(next(Path(root).rglob(name), None) for name in (f"{last}.py", last))


def _said_gone(stage: Stage, part: str) -> None:
    stage.note("libraries", f"{part} is not in the installed {part.partition('.')[0]}; it can be imported and not used")


def remedy(stage: Stage, error: BaseException) -> str | None:
    if isinstance(error, Exception) and re.search(rf"\b{Silent.__name__}\b", str(error)):
        return _bring(stage.root, stage.learned.get("used", ()))
    if (other := other_python.said_of(error, stage.root)) is not None:
        return other
    if isinstance(error, ImportError) and (lost := [item for item in stage.learned.get("left_out", ()) if item in str(error)]):
        return missing_module(stage, failed_at(error, stage.root) or stage.request.script, lost[0])
    part = re.search(rf"{_USED}|module '([\w.]+)' has no attribute|cannot import name .* from '([\w.]+)'", str(error))
    lacks = part is not None and part[2] is not None
    name = error.name if isinstance(error, ModuleNotFoundError) and not lacks else part[part.lastindex or 0] if part else None
    library = _named(stage, error) or (name or "").partition(".")[0]
    loaded = sys.modules.get(library)
    if not library:
        return _what_stood_in(stage, error)
    if loaded is not None and is_users(file_of(loaded), stage.root):
        return None
    if part is not None and library not in stage.learned.get("absent", ()):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            return f"{version_said(stage.root, library)} has no {name}"
    return _bring(stage.root, [library])


def _bring(root: str, libraries: Sequence[str]) -> str:
    """What is to be done for libraries that are missing: they are installed, or are git submodules that are not checked out."""
    if other := sorted(OTHERS.intersection(libraries)):
        return _of_other(other[0])
    if libraries and _HOSTS.issuperset(libraries):
        return f"{' and '.join(libraries)} is there only where the service runs notebooks, and cannot be installed"
    names = _to_install(root, [name for name in libraries if name not in _HOSTS]) or "the libraries that are missing"
    install = f"install {names} into the environment in which headrace runs"
    fetch = "which is not checked out: git submodule update --init --recursive fetches it"
    paths = [path for _, path in missing_paths(Path(root))]
    for library in libraries:
        for path in paths:
            if _plain(library) in map(_plain, path.split("/")):
                return f"{library} is the git submodule {path}, {fetch}"
    return f"{install}, or, where it is of the git submodule {paths[0]}, {fetch}" if paths else install


def _named(stage: Stage, error: BaseException) -> str | None:
    """A library that is not installed and that an error names: another one may not take what can only be imported."""
    words = re.split(r"[^\w.-]+", str(error))
    absent = stage.learned.get("absent", ())
    named = next((item for item in absent if ("." in item and item in str(error)) or item in words), None)
    return named or (_starred(absent, error) if isinstance(error, NameError) else None)


def _starred(absent: Sequence[str], error: BaseException) -> str | None:
    """The library of those that are not installed of which the file with a missing name imports all: it may have had that."""
    *_, (frame, _) = traceback.walk_tb(error.__traceback__)
    lines = linecache.getlines(frame.f_code.co_filename)
    found = (re.match(r"\s*from\s+([\w.]+)\s+import\s+\*", line) for line in lines)
    names = [line[1] for line in found if line is not None]
    return next((item for item in absent if any(f"{name}.".startswith(f"{item}.") for name in names)), None)


def _of_other(library: str) -> str:
    return f"the script computes with {library}, and Headrace migrates PyTorch: --entry takes a script whose model is PyTorch's"


def _plain(name: str) -> str:
    """A name as it is imported and as its folder may be called."""
    return re.sub(r"[-_.]", "", name.lower())


def _what_stood_in(stage: Stage, error: BaseException) -> str | None:
    """An error that what a library would have given may explain: a configuration that it reads, say."""
    gave = [name for name in stage.learned.get("used", ()) if not _RECORDS.search(name)]
    if other := sorted(OTHERS.intersection(gave)):
        return _of_other(other[0])
    caused = isinstance(error, LookupError | TypeError | ValueError | AttributeError | ArithmeticError)
    if not gave or not caused or EVERYWHERE.search(str(error)):
        return None
    return f"install {_to_install(stage.root, gave)}, whose results were stood in for, where headrace runs"


def idle(stage: Stage) -> str | None:
    """What would help a script that called no model: a library to which it may have handed one, and which stood in."""
    gave = [name for name in stage.learned.get("used", ()) if not _RECORDS.search(name)]
    if other := sorted(OTHERS.intersection(gave)):
        return _of_other(other[0])
    return f"what {' and '.join(gave)} would have done stood in: {_bring(stage.root, gave)}" if gave else None


def _to_install(root: str, libraries: Sequence[str]) -> str:
    """Their distributions; of a name that only an import says, a package index may have a stranger's."""
    told = []
    for library in libraries:
        name = _distribution(library)
        known = library.partition(".")[0] in SILENT | OWNS | _COMMON | _DISTRIBUTIONS.keys()
        sure = known or _stated(root, rf"""(?:^[\s-]*|["'])({_spelled(name)})(?![\w-])""") is not None
        told.append(
            name if sure else f"{name} (nothing here says where from, and a package index may have another of that name)"
        )
    return " and ".join(told)


def version_said(root: str, library: str) -> str:
    """Which version of a library is installed, and which one the repository wants."""
    name = _distribution(library)
    wanted = _required(root, name)
    if not _has_metadata(name):  # opencv-python-headless has cv2, too
        name = next(iter(importlib.metadata.packages_distributions().get(library, ())), name)
    installed = f"{name} {importlib.metadata.version(name)} is installed"
    return f"{installed}, where the repository asks for {wanted}; the installed one" if wanted else f"{installed}, which"


def _has_metadata(name: str) -> bool:
    return any(True for _ in importlib.metadata.distributions(name=name))


def _distribution(library: str) -> str:
    return _DISTRIBUTIONS.get(library, library).replace(".", "-")


def _required(root: str, name: str) -> str | None:
    """What the repository says of the version of a library: `timm==0.3.2`."""
    return _stated(root, rf"""^[\s"'-]*({_spelled(name)}\s*[=<>~!]=?[^"'#;\n]*)""")


def _spelled(name: str) -> str:
    return re.sub(r"[-_]", "[-_]", re.escape(name).replace(r"\-", "-"))


def _stated(root: str, text: str) -> str | None:
    """What a line of the repository's requirements says."""
    line = re.compile(text, re.I | re.M)
    for path in sorted(Path(root).glob("*.t*")) + sorted(Path(root).glob("*.y*ml")) + sorted(Path(root).glob("setup.*")):
        found = line.search(path.read_text(encoding="utf-8", errors="replace")) if path.is_file() else None
        if found is not None:
            return found[1].strip().rstrip(",")
    return None


def _old_lightning(stage: Stage, library: Any) -> None:
    """`self.hparams = hparams`, as modules for Lightning were written when it had nothing else for that."""

    def assign(own: Any, value: Any) -> None:
        stage.note("libraries", "self.hparams was assigned, as older versions of Lightning allowed")
        own._set_hparams(value)

    for kind in (library.LightningModule, library.LightningDataModule):
        kept = kind.hparams
        if kept.fset is None:
            stage.patch(kind, "hparams", property(kept.fget, assign))


class _Module(types.ModuleType):
    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.__path__: list[str] = []
        if name == "wandb":
            self.config, self.run = Config(), None

            def init(*_: Any, config: Any = None, **__: Any) -> Silent:
                self.config.update(config or {})
                run = Silent("wandb.run")
                folder = os.path.join(os.getcwd(), "wandb")
                os.makedirs(folder, exist_ok=True)
                run.__dict__.update(config=self.config, dir=folder, id="run", name="run", url="")
                self.run = run
                return run

            self.init = init

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Silent(f"{self.__name__}.{name}")


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def __init__(self, stage: Stage) -> None:
        self.stage = stage

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        library, _, part = fullname.partition(".")
        used = self.stage.learned.get("used", ())
        known = library in SILENT or library == "apex" or library in used or library in project_root.LIBRARIES
        if part:  # a part of an installed library that is not there is the library's business
            known = known and isinstance(sys.modules.get(library), _Module)
        known = known and not (library == "apex" and imported_by_library())  # Transformers would take the stub for apex
        known |= any(f"{fullname}.".startswith(f"{name}.") for name in used)
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True) if known else None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        library = "tensorboard" if _of_tensorboard(spec.name) else spec.name.partition(".")[0]
        stood = "torch stood in" if library == "apex" else "a silent stub stood in"
        stood = "what it does stood in" if library in project_root.LIBRARIES else stood
        used = self.stage.learned.get("used", ())
        library = next((name for name in used if f"{spec.name}.".startswith(f"{name}.")), library)
        if library in used:
            stood = "what the script takes from it does nothing here and is zero as a number"
        if library in used or not imported_by_library():  # what a library looks for by itself is none of the script's
            self.stage.note(
                "libraries", f"{library} is not {'installed' if '.' not in library else 'in the installed library'}; {stood}"
            )
        return _Module(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        if module.__name__ in project_root.LIBRARIES:
            vars(module).update(project_root.functions(self.stage.root))
        elif module.__name__ == "apex":
            vars(module).update(amp=_Amp("apex.amp"), parallel=_Parallel("apex.parallel"))
        elif module.__name__ in ("apex.amp", "apex.parallel"):
            made: Any = _Amp("apex.amp") if module.__name__ == "apex.amp" else _Parallel("apex.parallel")
            sys.modules[module.__name__] = made


def _of_tensorboard(name: str) -> bool:
    return f"{name}.".startswith("torch.utils.tensorboard.")


class _Tensorboard(importlib.abc.MetaPathFinder):
    """Asked first where tensorboard is not installed: torch has its part of it, which then cannot be imported."""

    def __init__(self, others: _Finder) -> None:
        self.others = others

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        return importlib.machinery.ModuleSpec(fullname, self.others, is_package=True) if _of_tensorboard(fullname) else None


class _OtherName(importlib.abc.MetaPathFinder):
    """Asked first: Lightning under the name by which it is not installed, where it is under the other."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        new, old = _is_installed("lightning"), _is_installed("pytorch_lightning")
        names = [(name, other) if old else (other, name) for name, other in _NAMES] if new != old else []
        names += [("lightning", "pytorch_lightning")] if old and not new else []  # it has the names of lightning.pytorch, too
        self.names = [pair for pair in names if not folders_of(stage.root, pair[0].partition(".")[0])]

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        for name, other in self.names:
            if f"{fullname}.".startswith(f"{name}."):
                real = other + fullname[len(name) :]
                if not _is_installed(real):
                    return None
                self.stage.note("libraries", f"{name} is not installed; {other}, which is the same, stood in")
                return importlib.machinery.ModuleSpec(fullname, Alias(real))
        return None


def _is_installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # what it would be a part of
        return False


class _Amp(Silent):
    def initialize(self, models: Any, optimizers: Any = None, *_: Any, **__: Any) -> Any:
        return models if optimizers is None else (models, optimizers)

    @contextlib.contextmanager
    def scale_loss(self, loss: Any, *_: Any, **__: Any) -> Iterator[Any]:
        yield loss

    def master_params(self, optimizer: Any) -> Iterator[Any]:
        return (value for group in optimizer.param_groups for value in group["params"])

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: Any) -> None: ...


class _Parallel(Silent):
    @property
    def DistributedDataParallel(self) -> Any:  # noqa: N802 - apex's name
        from torch.nn import DataParallel

        return lambda module, *_, **__: DataParallel(module)

    def convert_syncbn_model(self, model: Any, *_: Any, **__: Any) -> Any:
        return model
