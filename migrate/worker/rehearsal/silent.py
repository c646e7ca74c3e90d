"""What stands for a library that watches a script and gives nothing back: it does nothing, in whatever way it is used."""

from __future__ import annotations

import dis
import json
import re
import sys
import types
from collections.abc import Generator, Iterator
from typing import Any

from ..stub_modules import exception
from .places import frames
from .stage import Stage

_SCHEDULES = re.compile(r"sched|warm_?up|anneal|LR$|_lr\b", re.I)
"""Names of what sets an optimizer's learning rate: it is left as it is by what a trainer takes for one of torch's."""


_OPTIMIZERS = re.compile(
    r"optim|adam|adan\b|adabelief|sgd|lamb\b|lars\b|lion|ranger|madgrad|novograd|prodigy|rmsprop|shampoo|sophia|yogi", re.I
)
"""Names of what updates weights: one of torch's stands in, which trainers and schedules take for one."""


def _updated(args: tuple[Any, ...], named: dict[str, Any]) -> list[Any] | None:
    """The parameters that an optimizer is given, or their groups; None where none are given.

    A generator is gone through only where it is a module's own: nobody knows how long another is.
    """
    given = named.get("params", args[0] if args else None)
    code = getattr(given, "gi_code", None)
    if code is not None and code.co_name not in ("parameters", "_named_members"):
        return None
    if code is None and not isinstance(given, list | tuple | filter):
        return None
    assert given is not None
    items = list(given)
    of_model = [item.get("params") is not None if isinstance(item, dict) else hasattr(item, "requires_grad") for item in items]
    return items if items and all(of_model) else None


_NONE: Any = object()


def _default(name: str, args: tuple[Any, ...], named: dict[str, Any]) -> Any:
    """What a setting is that nobody has set, where the caller says so: `settings.value("folder", "models")`."""
    asked = (
        name.rpartition(".")[2] in ("get", "value", "getenv", "get_value", "get_param")
        and args
        and isinstance(args[0], str)
        and "/" not in args[0]
    )
    given = [*args[1:2], *(named[key] for key in ("default", "defaultValue") if key in named)] if asked else []
    return given[0] if given else _NONE


_STORES = re.compile(r"^(aio)?(redis|mcache|memcache|pymemcache|aiocache|diskcache)\b.*\.h?get$")


async def _nothing() -> None:
    """What is awaited of a store that holds nothing yet."""


_CHAINS = "torchvision.transforms."
"""Where functions are called one after the other, each with the image that the one before gave."""


def _is_transformed(value: object) -> bool:
    """Whether an image is handed on from transform to transform: what a missing library would have changed stays as it is."""
    caller = next(frames())
    in_chain = str(caller.f_globals.get("__name__")).startswith(_CHAINS) or caller.f_code.co_name in ("__call__", "forward")
    return in_chain and any(f"{kind.__module__}.{kind.__name__}" == "PIL.Image.Image" for kind in type(value).__mro__)


class Silent:
    """Does nothing and gives itself, whatever is called or asked for."""

    def __init__(self, name: str, items: Any = None, *, counts: bool = False) -> None:
        self.__dict__.update(_name=name, _items=items, _counts=counts)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        told = f"{self._name}.{name}"
        return self.__dict__.setdefault(name, exception(told) or Silent(told))

    def __call__(self, *args: Any, **named: Any) -> Any:
        # A decorator that watches a function or registers a class leaves it as it is.
        if len(args) == 1 and not named and (isinstance(args[0], types.FunctionType | type) or _is_transformed(args[0])):
            return args[0]
        if (default := _default(self._name, args, named)) is not _NONE:
            return default
        if _STORES.match(self._name):
            return _nothing() if "aio" in self._name or "asyncio" in self._name else None
        stepped = next((arg for arg in (*args, *named.values()) if hasattr(arg, "param_groups")), None)
        if stepped is not None and _SCHEDULES.search(self._name):
            return sys.modules["torch"].optim.lr_scheduler.LambdaLR(stepped, lambda step: 1.0)
        if _OPTIMIZERS.search(self._name) and (updated := _updated(args, named)) is not None:
            rate = named.get("lr", args[1] if len(args) > 1 else None)
            return sys.modules["torch"].optim.AdamW(updated, lr=rate if isinstance(rate, int | float) else 1e-3)
        if any(hasattr(arg, "parameters") or hasattr(arg, "shape") for arg in args):  # it tells of a model or its inputs
            return Silent(self._name, counts=True)
        # A bar of progress gives what is gone through.
        through = next((arg for arg in args if hasattr(arg, "__iter__") and not isinstance(arg, str | bytes | dict)), None)
        return self if through is None else Silent(self._name, through)

    def __mro_entries__(self, bases: tuple[Any, ...]) -> tuple[type, ...]:
        first = next(base for base in bases if type(base) is Silent)
        return (Base,) if first is self else ()  # a class of two of its own kinds has the one base

    def __instancecheck__(self, other: object) -> bool:
        return False

    def __len__(self) -> int:
        return 0

    def __bool__(self) -> bool:
        return True

    def __enter__(self) -> Silent:
        return self

    def __exit__(self, *_: object) -> None: ...

    async def __aenter__(self) -> Silent:
        return self

    async def __aexit__(self, *_: object) -> None: ...

    def __await__(self) -> Generator[Any, None, Silent]:
        yield from ()
        return self

    def __aiter__(self) -> Silent:
        return self

    async def __anext__(self) -> Any:
        try:
            return next(self)
        except StopIteration:
            raise StopAsyncIteration from None

    def __iter__(self) -> Iterator[Any]:
        if self._items is not None:
            return iter(self._items)
        caller = sys._getframe(1)
        operation, count = caller.f_code.co_code[caller.f_lasti : caller.f_lasti + 2]
        # What is told of a model is as many numbers as it is taken apart into, else operations and parameters.
        return iter((0.0,) * (count if self._counts and operation == dis.opmap["UNPACK_SEQUENCE"] else 2))

    def __next__(self) -> Any:
        """What a loader's own `__iter__` returns is gone through without being asked for an iterator."""
        left = self.__dict__.setdefault("_left", iter(self))
        return next(left)

    def __getitem__(self, key: Any) -> Any:
        return self

    def __setitem__(self, key: Any, value: Any) -> None: ...

    def __delitem__(self, key: Any) -> None: ...

    def __contains__(self, item: object) -> bool:
        return False

    def __str__(self) -> str:
        return ""

    def __float__(self) -> float:
        return 0.0

    def __int__(self) -> int:
        return 0

    __index__ = __int__

    def __round__(self, digits: int | None = None) -> float:
        return 0.0

    def _number(self, *_: Any) -> float:
        return 0.0

    def _no(self, other: Any) -> bool:
        return False

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = __neg__ = __abs__ = _number
    __floordiv__ = __rfloordiv__ = __mod__ = __pow__ = _number
    __lt__ = __le__ = __gt__ = __ge__ = _no

    def __format__(self, form: str) -> str:
        return format(0.0, form) if form else ""


class Base:
    """What a class of the user's has for a base from such a library: any arguments, and methods that do nothing."""

    def __init__(self, *args: Any, **named: Any) -> None: ...

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Silent(name)


class Entries(dict[str, Any]):
    """A dictionary whose entries are attributes too."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}") from None

    __setattr__ = dict.__setitem__
    __delattr__ = dict.__delitem__


class Config(Entries):
    """`wandb.config`: what was handed to `init`, by name."""

    def update(self, *args: Any, **named: Any) -> None:  # type: ignore[override]
        named.pop("allow_val_change", None)
        super().update(
            *(vars(item) if hasattr(item, "__dict__") and not isinstance(item, dict) else item for item in args), **named
        )


def run_at_once(stage: Stage) -> None:
    """`asyncio.run(dispatcher.start_polling())` of such a library has nothing to run."""

    def run(original: Any, main: Any, **named: Any) -> Any:
        return main if isinstance(main, Silent) else original(main, **named)

    stage.when_imported("asyncio", lambda library: stage.wrap(library, "run", run))


def kept_in_files(stage: Stage) -> None:
    """A run's number stands in files that a script writes and reads again: an empty text where they hold text alone, and in a
    checkpoint itself."""

    def default(original: Any, self: json.JSONEncoder, value: Any) -> Any:
        return str(value) if isinstance(value, Silent) else original(self, value)

    stage.wrap(json.JSONEncoder, "default", default)
    stage.when_imported("torch", lambda torch: torch.serialization.add_safe_globals([Silent]))

    def written(yaml: Any) -> None:
        for kind in (yaml.representer.SafeRepresenter, yaml.representer.Representer):
            kind.add_representer(Silent, lambda dumper, value: dumper.represent_str(str(value)))

    stage.when_imported("yaml", written)
