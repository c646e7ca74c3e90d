"""Plans as files: what `headrace plan-parallel --save` writes, with what tells the program that a plan was made for."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from ....errors import InputError
from .candidate import AXES, Plan
from .operators import Model
from .plan import Planned
from .rates import Rates

_WORD = re.compile(r"broadcast|partial_sum|split\(\d{1,3}\)")


@dataclass(frozen=True)
class Program:
    """What a plan was made for: the lengths of the mesh's axes, the shape of the input, [rows, ...], the shapes of the
    parameters by name, and the operators, each with its module, its shape and what it reads."""

    mesh: tuple[int, ...]
    input: tuple[int, ...]
    parameters: Mapping[str, tuple[int, ...]]
    operators: tuple[str, ...]

    @classmethod
    def of(cls, model: Model, mesh: Sequence[int]) -> Program:
        lines = []
        for one in model.operators[1:]:
            read = ", ".join([model.operators[at].name for at in one.inputs] + list(one.weights))
            lines.append(f"{one.module or 'the model'}: {one.name}({read}) {list(one.shape)}")
        return cls(tuple(mesh), model.operators[0].shape, model.shapes, tuple(lines))

    def difference(self, other: Program) -> str | None:
        """Where the other is another program, in words that name both; None where it is the same."""
        if self.mesh != other.mesh:
            return f"a mesh of {_by(self.mesh)} ranks, and this one is {_by(other.mesh)}"
        for name in dict.fromkeys([*self.parameters, *other.parameters]):
            before, now = self.parameters.get(name), other.parameters.get(name)
            if before != now:
                has, is_ = ("no parameter" if shape is None else f"{list(shape)}" for shape in (before, now))
                return f"a model in which {name} is {has}, and in this one it is {is_}"
        for line, own in zip(self.operators, other.operators, strict=False):
            if line != own:
                return f"a model that computes {line}, where this one computes {own}"
        if len(self.operators) != len(other.operators):
            return f"a model of {len(self.operators)} operators, and this one has {len(other.operators)}"
        return None


def document(planned: Planned, model: Model, mesh: Sequence[int], rates: Rates) -> dict[str, Any]:
    """What `--format json` prints and `--save` writes."""
    program = asdict(Program.of(model, mesh))
    del program["mesh"]
    return {"mesh": list(mesh), "rows": model.rows, **planned.to_json(), "program": program, "rates": rates.to_json()}


def read_plan(given: str | Path | Mapping[str, Any]) -> tuple[Plan, Program]:
    """The plan in a file, or in what was read of one. Raises InputError where it is none, saying what is wrong."""
    data: Any = given
    where = "the plan"
    if not isinstance(given, Mapping):
        where = str(given)
        try:
            data = json.loads(Path(given).read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError) as error:
            raise InputError(f"{where}: {error}; write it with headrace plan-parallel --save {where}") from None
    try:
        mesh, program = _lengths(data["mesh"]), data["program"]
        made_for = Program(
            mesh,
            _lengths(program["input"]),
            {str(name): _lengths(shape, least=0) for name, shape in program["parameters"].items()},
            tuple(map(str, program["operators"])),
        )
        return _plan(data["plan"], len(mesh)), made_for
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InputError(
            f"{where} is not what headrace plan-parallel --save writes ({type(error).__name__}: {error}); write it again"
        ) from None


def _plan(data: Mapping[str, Any], axes: int) -> Plan:
    known = {one.name for one in fields(Plan)}
    if unknown := data.keys() - known:
        raise ValueError(f"a plan has no {', '.join(sorted(unknown))}")
    made: dict[str, Any] = dict(data)
    for name in ("seconds", "compute", "moved", "memory"):
        made[name] = float(data[name])
        if not math.isfinite(made[name]):
            raise ValueError(f"{name} is {made[name]}")
    made["inputs"], made["outputs"] = _words(data["inputs"], axes), _words(data["outputs"], axes)
    made["layouts"] = {str(name): _words(words, axes) for name, words in data["layouts"].items()}
    made["boxed"] = tuple(
        (str(module), str(name), _words(before, axes), _words(after, axes)) for module, name, before, after in data["boxed"]
    )
    made["checkpoint"] = tuple(map(str, data["checkpoint"]))
    made["stages"] = tuple((str(first), str(last)) for first, last in data["stages"])
    for name, most in (("zero", 3), ("microbatches", 1 << 20)):
        if type(data[name]) is not int or not 0 <= data[name] <= most:
            raise ValueError(f"{name} is {data[name]!r}")
    split = bool(made["stages"] and made["layouts"])
    for name, needed in (("zero_axis", data["zero"]), ("axis", made["stages"]), ("tensor", split)):
        axis = data.get(name, "")  # plans of before had none within stages
        if axis not in AXES[:axes] and (needed or axis != ""):
            raise ValueError(f"{name} is {axis!r}, and the mesh has the axes {', '.join(AXES[:axes])}")
    taken = [axis for axis in (data["axis"], data.get("tensor", ""), data["zero_axis"]) if axis]
    if made["stages"] and len(set(taken)) < len(taken):
        raise ValueError("stages, split weights and ZeRO of a pipeline are each over an axis of their own")
    if made["stages"] and (not made["microbatches"] or data["schedule"] not in ("gpipe", "1f1b")):
        raise ValueError(f"a pipeline of {data['microbatches']} microbatches and schedule {data['schedule']!r}")
    return Plan(**made)


def _words(data: Any, axes: int) -> tuple[str, ...]:
    if isinstance(data, str) or len(data) != axes or not all(isinstance(one, str) and _WORD.fullmatch(one) for one in data):
        raise ValueError(f"{data!r} is no sbp for each of {axes} axes")
    return tuple(data)


def _lengths(data: Any, least: int = 1) -> tuple[int, ...]:
    if not all(type(one) is int and one >= least for one in data):
        raise ValueError(f"{data!r} are no sizes")
    return tuple(data)


def _by(mesh: Sequence[int]) -> str:
    return " x ".join(map(str, mesh))
