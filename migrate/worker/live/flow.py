"""Follows what the models of a script give through torch's functions, to what judges it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from ...reading.recipe import Place
from ..rehearsal.places import user_place
from .arrays import followed
from .choices import Chosen, note_choice
from .seen import Limit, Seen, tensors_in

_LONGEST_CHAIN = 8  # functions between a model's output and what judges it
_IGNORED = ("__get__", "__set__")
_SAME_NUMBERS = frozenset({
    "flatten", "reshape", "squeeze", "view", "clone", "contiguous", "cpu", "cuda", "detach", "float", "requires_grad_", "to",
    "dropout", "feature_dropout",  # which does nothing while evaluating: the numbers are compared as well
})  # fmt: skip
_COMPARISONS = frozenset({"gt", "ge", "lt", "le", "greater", "greater_equal", "less", "less_equal"})
_REDUCTIONS = frozenset({"mean", "sum", "prod", "norm"})
_PICKING = frozenset({"argmax", "max", "amax", "topk", "sort", "argsort", "argmin", "min", "amin"})
PAIRINGS = frozenset({"cosine_similarity", "matmul", "mm", "bmm", "rmatmul", "cdist", "pairwise_distance", "einsum"})
"""What holds vectors against others: what is read of that is said of both."""


class Flow(TorchFunctionMode):  # type: ignore[misc]
    """Follows the outputs of the last call of each model through torch's functions. `root` is the user's repository."""

    def __init__(self, root: str = "") -> None:
        super().__init__()
        self._root = root
        self._tracked: dict[int, _Followed] = {}
        self.running: Seen | None = None
        """The model that is making its output: what it does to what it gave before, as where that became its images, is no
        judgement of that."""

    def follow(self, seen: Seen, leaves: list[tuple[Place, torch.Tensor]]) -> None:
        self._tracked = {key: entry for key, entry in self._tracked.items() if entry.seen is not seen}
        for path, value in leaves:
            with torch._C.DisableTorchFunction():  # what is asked here is not what the script does
                given = value.detach().clone()
            self._tracked[id(value)] = _Followed(value, seen, path, given, _version(value), frozenset({(seen, path)}))

    def source(self, value: torch.Tensor) -> tuple[Seen, Place, bool] | None:
        """The model that gave a value, at which place of its output, and whether the value is that flattened. None where other
        numbers stand there by now, or may for other images."""
        entry = self._tracked.get(id(value))
        if entry is None or entry.value is not value or not entry.same or _version(value) != entry.version:
            return None
        with torch._C.DisableTorchFunction():
            flat = value.dim() == 2 < entry.given.dim()
            given = entry.given.flatten(1) if flat else entry.given
            alike = (value.shape, value.dtype, value.device) == (given.shape, given.dtype, given.device)
            try:
                return (entry.seen, entry.path, flat) if alike and torch.equal(value, given) else None
            except RuntimeError:  # there are no numbers, as on the meta device or within vmap
                return None

    def note_module(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        for _, value in (*tensors_in(args), *tensors_in(kwargs)):
            if (entry := self._tracked.get(id(value))) is not None:
                entry.seen.feeds.add((type(module).__name__, entry.seen.last))

    def __torch_function__(
        self, function: Any, kinds: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = function(*args, **(kwargs or {}))
        if self._tracked:
            given = (value if isinstance(value, list | tuple) else (value,) for value in (*args, *(kwargs or {}).values()))
            entries = [self._tracked.get(id(item)) for items in given for item in items if isinstance(item, torch.Tensor)]
            found = [entry for entry in entries if entry is not None and entry.seen is not self.running]
            sources = frozenset().union(*(entry.sources for entry in found))
            name = getattr(function, "__name__", "")
            picked = name in _PICKING or any(entry.picked for entry in found)
            for entry in found:
                self._note(replace(entry, sources=sources), name, args, kwargs or {}, result, picked=picked)
            if name == "numpy" and not picked and found and found[0].seen.last:
                return self._followed(replace(found[0], sources=sources), result)
        return result

    def _followed(self, entry: _Followed, array: np.ndarray) -> np.ndarray:
        """The array that a value became, of which is noted what a class is chosen from later: where it has other numbers than
        the model gave, those were noted."""
        before = Chosen()
        with torch._C.DisableTorchFunction():
            note_choice(before, "numpy", entry.value, entry.given, (), {})
        if before.other or before.scores or before.form:
            return array

        def chosen(name: str, numbers: np.ndarray, axis: Any) -> None:
            with torch._C.DisableTorchFunction():
                value = torch.from_numpy(numbers.astype(np.float64))
                self._note_choice(replace(entry, value=value), name, (value, *(() if axis is None else (axis,))), {})

        return followed(array, chosen)

    def _note(
        self,
        entry: _Followed,
        name: str,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        result: Any,
        *,
        picked: bool,
    ) -> None:
        seen, path = entry.seen, entry.path
        if name == "max" and len(args) + len(kwargs) > 1:
            name = "argmax"  # the largest of each row, and where it stands
        if seen.last and not entry.picked and name not in _IGNORED:
            self._note_choice(entry, name, args, kwargs)
        if name not in _IGNORED:
            seen.reads.setdefault(path, Counter())[name] += 1
            if seen.last:
                seen.evaluated.setdefault(path, Counter())[name] += 1
        if not entry.one_of_all and (name.strip("_") in _COMPARISONS or name == "round"):
            other = 0.5 if name == "round" else next((value for value in args if value is not entry.value), None)
            if (values := _numbers(other, entry.value)) is not None:
                seen.limits.setdefault(path, Counter())[Limit(values, entry.after_sigmoid)] += 1
                of_best = entry.picked and seen.last and entry.value.is_floating_point()
                if of_best and (where := user_place(self._root)) is not None:
                    seen.best_compared.setdefault(path, set()).add(where)
        same = entry.same and _version(entry.value) == entry.version and name in _SAME_NUMBERS
        written = result is entry.value or name == "__setitem__"
        if written and not same and name not in _IGNORED:
            self._tracked[id(entry.value)] = replace(entry, same=False)
        if entry.length < _LONGEST_CHAIN and name.strip("_") not in PAIRINGS:
            after = entry.after_sigmoid or name == "sigmoid"
            for value in result if isinstance(result, list | tuple) else (result,):
                if isinstance(value, torch.Tensor):
                    loss = name in _REDUCTIONS or name.endswith("_loss") or "cross_entropy" in name
                    one = entry.one_of_all or (loss and value.dim() == 0)
                    made = replace(
                        entry, value=value, version=_version(value), same=same, length=entry.length + 1, after_sigmoid=after,
                        one_of_all=one, picked=picked,
                    )  # fmt: skip
                    self._tracked.setdefault(id(value), made)

    def _note_choice(self, entry: _Followed, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Note what a class is chosen from, for each of the models whose outputs it is made of."""
        chosen = Chosen()
        try:
            note_choice(chosen, name, entry.value, entry.given, args[1:], kwargs)
        except RuntimeError:  # there are no numbers, as within vmap
            return
        models = len({seen.ordinal for seen, _ in entry.sources})
        if models > 1 and (chosen.other or chosen.scores):
            chosen.form = f"what {models} models give together"
        if chosen.rows and (where := user_place(self._root)) is not None:
            for seen, path in entry.sources:
                seen.chosen.setdefault(path, {}).setdefault(where, Chosen()).add(chosen)


@dataclass(frozen=True, eq=False)
class _Followed:
    """A value that a model gave or that became of one, so many functions later. `given` is a copy of what the model gave,
    `sources` are all outputs that it is made of, `same` says that no function came after it but such as leave the numbers as
    they are, and `one_of_all` that it is one number that was computed from all of them, as a loss is."""

    value: torch.Tensor
    seen: Seen
    path: Place
    given: torch.Tensor
    version: int | None
    sources: frozenset[tuple[Seen, Place]]
    same: bool = True
    length: int = 0
    after_sigmoid: bool = False
    one_of_all: bool = False
    picked: bool = False
    """Whether a largest or smallest number was picked of it before."""


def _version(value: torch.Tensor) -> int | None:
    """How often torch wrote into a tensor or a view of it; not told of those of inference mode."""
    with torch._C.DisableTorchFunction():
        return None if value.is_inference() else int(value._version)


def _numbers(value: Any, compared: torch.Tensor) -> tuple[float, ...] | None:
    """One number, or one for each column of what is compared with them; None for anything else."""
    try:
        numbers = torch.as_tensor(value, dtype=torch.float64).detach().cpu()
    except (TypeError, ValueError, RuntimeError):
        return None
    if numbers.dim() == 0:
        return (float(numbers),)
    columns = compared.shape[-1] if compared.dim() == 2 else 0
    return tuple(numbers.flatten().tolist()) if numbers.numel() == columns > 1 else None
