"""What a module computes beside its weights, as one digest: its code, the values that this reads, and how its parts lie.

Two modules of one digest and the same weights are the same program. What cannot be told has none: a hook, a state outside, an
object that is neither code nor a plain value.
"""

from __future__ import annotations

import builtins
import dataclasses
import dis
import enum
import functools
import hashlib
import inspect
import logging
import operator
import sys
import types
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn
from torch.nn.modules import module as _for_all

_MOST = 50_000  # parts that are looked at; of larger programs nothing is told
_PLAIN = (
    *(type(None), bool, int, float, complex, str, bytes, range, type(...), type(NotImplemented)),
    *(torch.dtype, torch.device, torch.layout, torch.memory_format),
)
# Known by their names: of one version, and without a state that an answer may depend on.
_STATELESS = frozenset({
    "abc", "builtins", "collections", "copy", "dataclasses", "enum", "functools", "itertools", "logging", "math", "numbers",
    "operator", "reprlib", "torch", "types", "typing", "warnings",
})  # fmt: skip
# Of these, nothing but functions and classes: code may read them under names that it makes up.
_GIVEN_WHOLE = frozenset({"math", "operator", "torch.nn", "torch.nn.functional"})
_OF_THE_CLASS = frozenset({
    "__annotations__", "__annotate__", "__annotate_func__", "__annotations_cache__", "__dict__", "__doc__", "__firstlineno__",
    "__module__", "__parameters__", "__orig_bases__", "__abstractmethods__", "_abc_impl", "__static_attributes__",
    "__classdictcell__", "__weakref__", "__jit_unused_properties__", "__dataclass_params__", "__dlpack_c_exchange_api__",
    "__slotnames__",
})  # fmt: skip
# What made a module, or describes it, is no part of its forward pass unless that reads one of these: what it made is looked at.
_NOT_OF_A_PART = frozenset({"__init__", "__setstate__", "extra_repr", "__repr__", "__str__"})
_MAKES_ANOTHER = _NOT_OF_A_PART | {"type", "__class__"}
_HOOKS = frozenset({"_forward_hooks", "_forward_pre_hooks"})
_OF_THE_MODULE = frozenset({
    "training", "_parameters", "_buffers", "_modules", "_headrace_evaluation",
    *(name for name in vars(nn.Module()) if "_hooks" in name),  # of gradients and of stored weights, but for two
}) - _HOOKS  # fmt: skip
_BUILT_IN = (
    *(types.BuiltinFunctionType, types.MethodDescriptorType, types.WrapperDescriptorType),
    *(types.GetSetDescriptorType, types.MemberDescriptorType, types.ClassMethodDescriptorType),
)
_OF_AN_ENUM = frozenset({"__objclass__", "_sort_order_"})
_FIELD = type(inspect.Attribute.name)  # a named tuple's
_READS = frozenset({"LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS"})
_READS_OF_IT = frozenset({"LOAD_ATTR", "LOAD_METHOD", "LOAD_SUPER_ATTR"})
_OF_TORCH_COMPILE = frozenset({"manual_seed", "___needs_generation_tag_patch"})  # others as soon as it is imported
# Functions of Python and of torch: whatever these bring.
_OUTSIDE = frozenset({
    "compile", "eval", "exec", "from_file", "globals", "hash", "id", "input", "is_available", "load", "open",
})  # fmt: skip
_NOT_LOOKED_AT = frozenset({
    "__annotate__", "__annotations__", "__builtins__", "__doc__", "__globals__", "__import__", "__subclasses__",
    "getEffectiveLevel", "isEnabledFor",
})  # fmt: skip


class _UnknownError(Exception):
    """There is something of which nobody can tell what it computes."""


def program_digest(model: nn.Module) -> str | None:
    """Of the code that the module's forward pass may reach, of plain values that it reads, and of its parts; weights and the
    mode (training or evaluation) are left out. None where that cannot be told.

    Comments, names of files and lines count as little as the module that a class was defined in: a script's own is called
    `__main__` where it runs.
    """
    try:
        return f"sha256:{_Program().digest(model)}"
    except Exception:  # noqa: BLE001 - `_UnknownError`, or what the user's objects raise where they are looked at
        return None


class _Program:
    def __init__(self) -> None:
        self._total = hashlib.sha256()
        self._seen: dict[tuple[int, str], int] = {}
        self._kept: list[Any] = []  # so that no other object gets the identity of one that was seen
        self._parts = 0
        self._own: frozenset[int] = frozenset()  # the modules whose tensors are the weights
        self._kinds: dict[type, None] = {}  # the classes of the modules
        self._read: set[str] = set()  # the names of globals and attributes that code reads

    def digest(self, model: nn.Module) -> str:
        if _for_all._global_forward_hooks or _for_all._global_forward_pre_hooks:
            raise _UnknownError("hooks of all modules")
        if torch._C._len_torch_function_stack() or torch._C._len_torch_dispatch_stack():
            raise _UnknownError("a mode")
        self._add(f"{sys.implementation.cache_tag} torch {torch.__version__} {torch.get_default_dtype()}")
        for space in (torch, nn.functional, torch.Tensor):
            self._of_torch(space)
        self._own = frozenset(map(id, model.modules()))
        self._value(model)
        if not self._read.isdisjoint(_MAKES_ANOTHER):
            self._values(*self._kinds)
        if "requires_grad" in self._read:
            self._add(str([value.requires_grad for value in model.parameters()]))
        return self._total.hexdigest()

    def _add(self, text: str) -> None:
        self._parts += 1
        if self._parts > _MOST:
            raise _UnknownError(text)
        data = text.encode("utf-8", "surrogatepass")
        self._total.update(f"{len(data)} ".encode() + data)

    def _new(self, value: Any, how: str = "") -> bool:
        """Whether it comes up for the first time, looked at so; else only which one it is counts."""
        number = self._seen.setdefault((id(value), how), len(self._seen))
        if number == len(self._kept):
            self._kept.append(value)
            return True
        self._add(f"seen {number}")
        return False

    def _value(self, value: Any) -> None:
        kind = type(value)
        if kind in _PLAIN:
            self._add(f"{kind.__name__} {value!r}")
        elif isinstance(value, enum.Enum):
            self._values({name: item for name, item in vars(value).items() if name not in _OF_AN_ENUM}, kind)
        elif isinstance(value, types.ModuleType):
            if value.__name__ not in _GIVEN_WHOLE:
                raise _UnknownError(value.__name__)
            self._add(value.__name__)
        elif issubclass(kind, tuple):  # constants, which one process shares where another has copies
            items = tuple(tuple.__iter__(value))
            self._add(f"{kind.__qualname__} {len(items)}")
            self._values(*items, kind, *([vars(value)] if hasattr(value, "__dict__") else []))
        elif self._new(value):
            self._part(value, kind)

    def _part(self, value: Any, kind: type) -> None:
        if isinstance(value, nn.Module):
            self._module(value)
        elif isinstance(value, torch.Tensor):
            self._tensor(value)
        elif isinstance(value, types.FunctionType):
            self._function(value)
        elif isinstance(value, type):
            self._class(value)
        elif kind in (list, set, frozenset):
            self._add(f"{kind.__name__} {len(value)}")
            self._values(*(value if kind is list else sorted(value, key=repr)))
        elif kind in (dict, OrderedDict):
            self._add(f"{kind.__name__} {len(value)}")
            for key, item in value.items():
                self._value(key)
                self._value(item)
        elif kind is slice:
            self._values(value.start, value.stop, value.step)
        elif kind is types.SimpleNamespace or (kind.__module__, kind.__name__) == ("argparse", "Namespace"):
            self._add(kind.__name__)
            self._value(vars(value))
        elif kind is types.MethodType:
            self._values(value.__func__, value.__self__)
        elif kind is functools.partial:
            self._values(value.func, value.args, value.keywords, vars(value))
        elif kind in (staticmethod, classmethod):
            self._add(kind.__name__)
            self._value(value.__func__)
        elif kind is property:
            self._values(value.fget, value.fset)
        elif kind is functools.cached_property:
            self._value(value.func)
        elif kind is _FIELD:
            self._add(f"field {value.__reduce__()[1][0]}")
        elif kind is dataclasses.Field:  # defaults are in the class, or in how it is made
            self._values(value.name, dict(value.metadata))
        elif kind in (torch.no_grad, torch.inference_mode, torch.enable_grad):  # what a function may be decorated with
            self._values(kind, vars(value))
        elif kind is logging.Logger:
            self._add(f"logs to {value.name}")
        elif isinstance(value, _BUILT_IN):
            self._named(value)
        else:
            raise _UnknownError(kind.__qualname__)

    def _values(self, *values: Any) -> None:
        for value in values:
            self._value(value)

    def _named(self, value: Any) -> None:
        """What is known by its name: a part of torch, or of the standard library where that has no state."""
        home = getattr(value, "__module__", None) or getattr(getattr(value, "__objclass__", None), "__module__", None)
        owner = getattr(value, "__self__", None)
        home = owner.__name__ if isinstance(owner, types.ModuleType) else owner.__module__ if isinstance(owner, type) else home
        if home is None or _root(home.lstrip("_")) not in _STATELESS or value.__name__ in _OUTSIDE:
            raise _UnknownError(repr(value))
        self._add(f"{home} {value.__qualname__}")

    def _module(self, module: nn.Module) -> None:
        self._class_of_a_part(type(module))
        own = id(module) in self._own
        for name, held in (("parameters", module._parameters), ("buffers", module._buffers)):
            self._add(f"{name} {[(key, value is None) for key, value in held.items()]}")
            for value in held.values():
                self._attributes(value) if own and value is not None else self._value(value)
        if not own:  # kept in a list, or anywhere outside: nobody has asked for its mode
            self._add(f"training {module.training}")
        self._add(f"modules {list(module._modules)}")
        for name, value in sorted(vars(module).items()):
            if name in _OF_THE_MODULE:
                continue
            if name in _HOOKS and value:
                raise _UnknownError(name)
            self._add(name)
            self._value(value)
        self._values(*module._modules.values())

    def _tensor(self, value: torch.Tensor) -> None:
        """One that is neither parameter nor buffer, so that it is not among the weights."""
        if value.layout != torch.strided or value.is_quantized or value.is_meta:
            raise _UnknownError("tensor")
        self._attributes(value)
        plain = value.detach().cpu().contiguous()
        self._add(f"{plain.dtype} {tuple(plain.shape)} {value.stride()}")
        self._total.update(plain.reshape(-1).view(torch.uint8).numpy())

    def _attributes(self, value: torch.Tensor) -> None:
        """Those that somebody gave a tensor; one of a subclass computes what that says."""
        if type(value) not in (torch.Tensor, nn.Parameter):
            raise _UnknownError(type(value).__qualname__)
        given = {name: item for name, item in vars(value).items() if not name.startswith("_dynamo_")}  # marks of torch.export
        if given:
            self._value(given)

    def _class(self, value: type) -> None:
        if _is_by_name(value):
            self._class_of_a_part(value) if issubclass(value, nn.Module) else self._named(value)
            return
        self._members(value, _OF_THE_CLASS)
        self._values(*value.__bases__)

    def _class_of_a_part(self, value: type) -> None:
        self._kinds[value] = None
        for each in value.__mro__:
            if not self._new(each, "of a part"):
                continue
            if not _is_by_name(each):
                self._members(each, _OF_THE_CLASS | _NOT_OF_A_PART)
                continue
            self._named(each)
            if issubclass(each, nn.Module):
                self._of_torch(each)

    def _of_torch(self, space: type | types.ModuleType) -> None:
        """What a class or a module of torch has, by its names, but for what somebody else has put there."""
        for name, member in sorted(vars(space).items()):
            if isinstance(space, types.ModuleType) and (name.startswith("_") or not callable(member)):
                continue
            if name in _OF_THE_CLASS | _NOT_OF_A_PART | _OUTSIDE | _OF_TORCH_COMPILE:
                continue
            known = _root(getattr(member, "__module__", None) or "") in ("torch", "typing")
            if isinstance(member, (types.FunctionType, *_BUILT_IN)) or not (known or isinstance(member, type)):
                self._add(name)
                self._value(member)

    def _members(self, value: type, left_out: frozenset[str]) -> None:
        self._add(f"class {value.__qualname__}")
        if type(value) is not type:
            self._value(type(value))
        for name, member in sorted(vars(value).items()):
            if name not in left_out:
                self._add(name)
                self._value(member)

    def _function(self, function: types.FunctionType) -> None:
        home = str(function.__globals__.get("__name__"))  # its `__module__` may be that of what it wraps
        if _root(home) in _STATELESS:
            code = function.__code__
            if code.co_qualname in _OUTSIDE:
                raise _UnknownError(code.co_qualname)
            self._add(f"{home} {code.co_qualname} {code.co_firstlineno}")
            self._closure(function)
            return
        self._code(function.__code__)
        self._values(function.__defaults__, function.__kwdefaults__)
        self._closure(function)
        if vars(function):
            self._value(vars(function))
        chains, attributes = _reads(function.__code__)
        self._read |= attributes - {function.__name__} | {name for name, *_ in chains}  # `super().__init__()` is no other way
        if not self._read.isdisjoint(_NOT_LOOKED_AT):
            raise _UnknownError(function.__qualname__)
        for name, *then in chains:
            self._add(name)
            if name in function.__globals__:
                self._global(function.__globals__[name], then)
            elif hasattr(builtins, name):
                self._value(getattr(builtins, name))
            else:
                self._add("is not there")

    def _closure(self, function: types.FunctionType) -> None:
        for cell in function.__closure__ or ():
            try:
                self._value(cell.cell_contents)
            except ValueError:  # empty as yet
                self._add("empty")

    def _global(self, value: Any, then: Sequence[str]) -> None:
        """A module counts with what a function reads of it."""
        for name in then:
            if not isinstance(value, types.ModuleType):
                break
            root = _root(value.__name__)
            if root in sys.stdlib_module_names and root not in _STATELESS:
                raise _UnknownError(value.__name__)  # such as os or random: what it answers is no matter of code
            if name not in vars(value):
                raise _UnknownError(name)  # the module may make it up
            self._add(name)
            value = vars(value)[name]
        self._value(value)

    def _code(self, code: types.CodeType) -> None:
        self._add(f"{code.co_name} {code.co_argcount} {code.co_posonlyargcount} {code.co_kwonlyargcount} {code.co_flags}")
        self._add(f"{code.co_names} {code.co_varnames} {code.co_freevars} {code.co_cellvars}")
        self._add(code.co_code.hex())
        self._add(getattr(code, "co_exceptiontable", b"").hex())
        for item in code.co_consts:
            self._code(item) if isinstance(item, types.CodeType) else self._value(item)


def _root(name: str) -> str:
    return name.partition(".")[0]


def _is_by_name(value: type) -> bool:
    """Whether a class is torch's, or the standard library's without a state, and is found there by its name: what runs in an
    unnamed module says that it is of `builtins`."""
    home = sys.modules.get(value.__module__) if _root(value.__module__) in _STATELESS else None
    try:
        return home is not None and operator.attrgetter(value.__qualname__)(home) is value
    except AttributeError:
        return False


@functools.lru_cache(maxsize=4096)
def _reads(code: types.CodeType) -> tuple[tuple[tuple[str, ...], ...], frozenset[str]]:
    """The globals that code reads, each with the attributes that it reads of that at once, and all attributes. Those of the
    functions in it are among them. An import is one of `__import__`."""
    chains = dict[tuple[str, ...], None]()
    attributes: set[str] = set()
    chain: tuple[str, ...] = ()
    for each in dis.get_instructions(code):
        if each.opname in _READS_OF_IT:
            attributes.add(str(each.argval))
            chain = (*chain, str(each.argval)) if chain else ()
        elif each.opname != "EXTENDED_ARG":
            if chain:
                chains[chain] = None
            chain = (str(each.argval),) if each.opname in _READS else ("__import__",) if each.opname == "IMPORT_NAME" else ()
    for item in code.co_consts:
        if isinstance(item, types.CodeType):
            inner = _reads(item)
            chains.update(dict.fromkeys(inner[0]))
            attributes |= inner[1]
    return tuple(chains), frozenset(attributes)
