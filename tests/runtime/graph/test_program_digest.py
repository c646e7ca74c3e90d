"""One digest means one program: whatever an answer may depend on beside the weights changes it, or there is none."""

import builtins
import copy
import os
import subprocess
import sys
import textwrap
import types

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from headrace.runtime.graph.program_digest import program_digest

SOURCE = """
import math
import os
import random
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn

SHIFT = 0.5
TABLE = {"low": 1, "high": [2, 3]}


@dataclass
class Settings:
    power: int = 2


def scaled(x, by=2.0):
    return x * by


def around(offset):
    def add(x):
        return x + offset
    return add


class Base(nn.Module):
    gain = 1.5

    def late(self, x):
        return x.relu()

    @property
    def share(self):
        return 0.25


class Net(Base):
    def __init__(self, slope=0.1):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 4, 3), nn.LeakyReLU(slope))
        self.head = nn.Linear(4, 2)
        self.settings = Settings
        self.add = around(0.5)
        self.mask = [1, 2]

    def forward(self, x):
        # a remark
        x = self.body(x).mean((2, 3)) + SHIFT + TABLE["low"]
        x = self.late(scaled(x)) * self.gain + self.share + math.pi
        return self.add(self.head(x)) * sum(part for part in self.mask)
"""


def made(source=SOURCE, name="net", **options):
    module = types.ModuleType(name)
    exec(compile(source, f"/{name}.py", "exec"), vars(module))
    torch.manual_seed(0)
    return module.Net(**options)


def test_the_same_program_has_one_digest():
    first = program_digest(made())
    assert first is not None
    assert program_digest(made()) == first
    other = made()
    nn.init.zeros_(other.head.weight)
    assert program_digest(other.eval()) == first, "weights and the mode are left out"
    moved = made("\n\n\n" + SOURCE.replace("# a remark", "# another one,\n        # and longer"), "__main__")
    assert program_digest(moved) == first, "where it stands and what is remarked makes no difference"


@pytest.mark.slow  # another process, whose hashes are of another seed: test_what_torch_does_to_itself_makes_no_difference
def test_another_process_finds_the_same(tmp_path):
    (tmp_path / "net.py").write_text(SOURCE)
    code = "import net; from headrace.runtime.graph.program_digest import program_digest; print(program_digest(net.Net()))"
    found = {
        subprocess.run(
            [sys.executable, "-c", code], cwd=tmp_path, env={**os.environ, "PYTHONHASHSEED": seed}, capture_output=True,
            text=True, check=True,
        ).stdout.strip()
        for seed in ("1", "2")
    }  # fmt: skip
    assert found == {program_digest(made())}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("SHIFT = 0.5", "SHIFT = 0.25"),
        ('"low": 1', '"low": 7'),
        ("by=2.0", "by=2.5"),
        ("return x * by", "return x * by + (x.amax() > 9)"),
        ("around(0.5)", "around(0.75)"),
        ("return x + offset", "return x - offset"),
        ("gain = 1.5", "gain = 1.25"),
        ("return 0.25", "return 0.125"),
        ("x.relu()", "x.relu() if x.amin() > -9 else x"),
        ("self.mask = [1, 2]", "self.mask = [1, 3]"),
        ("math.pi", "math.e"),
        ("nn.LeakyReLU(slope)", "nn.ELU(slope)"),
        ("self.mask = [1, 2]", "self.mask = [1, 2]; self.forward = self.late"),
        ("self.mask = [1, 2]", "self.mask = [1, 2]; self.extra = torch.ones(2)"),
        ("nn.Conv2d(3, 4, 3)", "nn.Conv2d(3, 4, 3, stride=2)"),
        ("power: int = 2", "power: int = 3"),
        (
            "class Base(nn.Module):",
            "class Base(nn.Module):\n    def __call__(self, x):\n        return super().__call__(x) + 1\n",
        ),
    ],
)
def test_what_differs_in_one_hidden_place_is_another_program(old, new):
    assert old in SOURCE
    assert program_digest(made(SOURCE.replace(old, new))) != program_digest(made())


def test_an_argument_of_the_constructor_counts_by_what_it_made():
    assert program_digest(made(slope=0.2)) != program_digest(made())


@pytest.mark.parametrize(
    "forward",
    [
        "return self.head(x) * (2 if os.environ.get('TWICE') else 1)",
        "return self.head(x) * (random.random() > 2)",
        "return self.head(x) + self.outside.offset",
        "return STATE.weigh(self.head(x))",
    ],
)
def test_what_a_state_outside_decides_has_none(forward):
    source = SOURCE + textwrap.dedent(f"""
        class Outside:
            offset = 1.0

            def weigh(self, x):
                return x

        STATE = Outside()

        class Net(Net):
            def __init__(self):
                super().__init__()
                self.outside = STATE

            def forward(self, x):
                {forward}
    """)
    assert program_digest(made(source)) is None


@pytest.mark.parametrize("kept", ["self.mask = [nn.Linear(2, 2)]", "object.__setattr__(self, 'other', nn.Linear(2, 2))"])
def test_a_module_that_is_no_part_counts_with_its_weights(kept):
    source = SOURCE.replace("self.mask = [1, 2]", f"{kept}; self.held = [1]").replace("self.mask)", "self.held)")
    first = program_digest(made(source))
    assert first is not None
    assert program_digest(made(source)) == first
    other = made(source)
    outside = other.other if hasattr(other, "other") else other.mask[0]
    nn.init.zeros_(outside.weight)
    assert program_digest(other) != first


@pytest.mark.parametrize("body", ["import own_state\n        x = own_state.use(x)", "x = x * len(open('scale.txt').read())"])
def test_what_a_forward_pass_brings_in_by_itself_has_none(body):
    assert program_digest(made(SOURCE.replace("# a remark", body))) is None


WRAPPED = """
import functools
import torch.nn.functional as F

@functools.wraps(F.relu)
def changed(x):
    return x + 1
"""
OF_AN_ENUM = """
import enum

class Mode(enum.Enum):
    ON = 1

    def add(self, x):
        return x + 1

changed = Mode.ON.add
"""
OF_A_TUPLE = """
from typing import NamedTuple

class Way(NamedTuple):
    by: int

    def add(self, x):
        return x + 1

changed = Way(1).add
"""


@pytest.mark.parametrize("given", [WRAPPED, OF_AN_ENUM, OF_A_TUPLE])
def test_code_behind_another_name_counts(given):
    def digest(text):
        return program_digest(made(text + SOURCE.replace("self.add = around(0.5)", "self.add = changed")))

    found = digest(given)
    assert found is None or found == digest(given)
    assert found is None or found != digest(given.replace("x + 1", "x + 2"))


def test_a_named_tuple_counts_by_its_fields():
    text = "from typing import NamedTuple\n\nclass Way(NamedTuple):\n    by: int = 1\n    to: int = 2\n"
    sources = [text + SOURCE.replace("settings = Settings", f"settings = Way(1, {number})") for number in (2, 2, 3)]
    first, same, other = (program_digest(made(source)) for source in sources)
    assert first is not None
    assert (first == same, first == other) == (True, False)


def test_a_class_without_a_module_counts_by_its_code():
    def model(factor):
        names = {"nn": nn}
        code = f"class Scaled(nn.Module):\n    def forward(self, x):\n        return x * {factor}\n"
        exec(code, names)
        return names["Scaled"]()

    assert program_digest(model(2)) != program_digest(model(3))


def test_another_forward_pass_put_into_a_class_of_torch_counts(monkeypatch):
    before = program_digest(made())
    monkeypatch.setattr(nn.LeakyReLU, "forward", lambda self, x: x + 1)
    assert program_digest(made()) != before


# Each computes something else with 3.0 in the place of 2.0, and says so at one place that is easily overlooked.
HIDDEN = {
    "a function that torch wraps": """
        class Net(nn.Module):
            @torch.no_grad()
            def forward(self, x):
                return x * 2.0
    """,
    "a function that functools wraps": """
        @functools.singledispatch
        def scaled(x):
            return x

        @scaled.register
        def _(x: torch.Tensor):
            return x * 2.0

        class Net(nn.Module):
            def forward(self, x):
                return scaled(x)
    """,
    "functions of torch with one name": """
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.pool = F.max_pool2d if 2.0 < 2.5 else F.adaptive_max_pool2d

            def forward(self, x):
                return self.pool(x, 2)
    """,
    "an attribute called like hooks": """
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.last_hooks = [lambda x: x * 2.0]

            def forward(self, x):
                return self.last_hooks[0](x)
    """,
    "an attribute of a parameter": """
        class Net(nn.Linear):
            def __init__(self):
                super().__init__(2, 2)
                self.weight.factor = 2.0

            def forward(self, x):
                return x * self.weight.factor
    """,
    "a parameter that learns": """
        class Net(nn.Linear):
            def __init__(self):
                super().__init__(2, 2)
                self.weight.requires_grad_(2.0 < 2.5)

            def forward(self, x):
                return x * self.weight.requires_grad
    """,
    "a class of tensors": """
        class Own(torch.Tensor):
            factor = 2.0

        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.register_buffer("own", torch.ones(2).as_subclass(Own))

            def forward(self, x):
                return x * self.own.factor
    """,
    "how a tensor lies": """
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                table = torch.arange(4.0).view(2, 2)
                self.table = [table if 2.0 < 2.5 else table.t().contiguous().t()]

            def forward(self, x):
                return x * self.table[0].as_strided((4,), (1,))
    """,
    "the mode of a module that is no part": """
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.norms = [nn.BatchNorm2d(3).train(2.0 < 2.5)]

            def forward(self, x):
                return self.norms[0](x)
    """,
    "another module is made": """
        class Net(nn.Module):
            def __init__(self, first=True):
                super().__init__()
                self.factor = 1.0 if first else 2.0

            def forward(self, x):
                return x * type(self)(first=False).factor
    """,
    "what describes it": """
        class Net(nn.Module):
            def extra_repr(self):
                return "2.0"

            def forward(self, x):
                return x * float(self.extra_repr())
    """,
    "how a member of an enum is written": """
        class Way(enum.Enum):
            ON = 1

            def __str__(self):
                return "2.0"

        class Net(nn.Module):
            way = Way.ON

            def forward(self, x):
                return x * float(str(self.way))
    """,
    "an attribute of a member of an enum": """
        class Way(enum.Enum):
            ON = 1

        Way.ON.factor = 2.0

        class Net(nn.Module):
            def forward(self, x):
                return x * Way.ON.factor
    """,
    "an attribute of a tuple": """
        class Way(tuple):
            pass

        WAY = Way()
        WAY.factor = 2.0

        class Net(nn.Module):
            def forward(self, x):
                return x * WAY.factor
    """,
    "the metadata of a field": """
        @dataclasses.dataclass
        class Settings:
            power: int = dataclasses.field(default=1, metadata={"factor": 2.0})

        class Net(nn.Module):
            def forward(self, x):
                return x * dataclasses.fields(Settings)[0].metadata["factor"]
    """,
    "an attribute of a class of torch": """
        nn.Identity.factor_of_a_test = 2.0

        class Net(nn.Module):
            def forward(self, x):
                return x * nn.Identity.factor_of_a_test
    """,
}


@pytest.mark.parametrize("name", HIDDEN)
def test_what_is_easily_overlooked_counts(name, monkeypatch):
    monkeypatch.setattr(nn.Identity, "factor_of_a_test", None, raising=False)

    def digest(text):
        return program_digest(made("import dataclasses, enum, functools, types\n" + SOURCE + textwrap.dedent(text)))

    found = digest(HIDDEN[name])
    assert found == digest(HIDDEN[name])
    assert found is None or found != digest(HIDDEN[name].replace("2.0", "3.0"))


@pytest.mark.parametrize(
    "read",
    [
        "getattr(helpers, 'LIMIT')",
        "vars(helpers)['LIMIT']",
        "helpers.__dict__['LIMIT']",
        "limit(helpers)",
        "limit(helpers.inner)",
        "helpers.made_up",
        "torch.load('scale.pt')",
        "load('scale.pt')",
        "builtins.open('scale.txt').read()",
        "getattr(builtins, 'open')('scale.txt').read()",
        "evaluated('open')('scale.txt').read()",
        "torch.os.environ['SCALE']",
        "getattr(torch, 'os').environ['SCALE']",
        "logging.os.environ['SCALE']",
        "limit.__globals__['os'].environ['SCALE']",
        "hash('scale') % 7",
        "torch.ops.own.scaled(x)",
        "OPS.scaled(x)",
        "torch.backends.cudnn.enabled",
        "torch.cuda.is_available()",
        "LOG.isEnabledFor(20)",
    ],
)
def test_what_is_read_in_a_roundabout_way_has_none(read):
    source = SOURCE + textwrap.dedent(f"""
        import builtins, logging, types
        from torch import load

        LOG, OPS, evaluated = logging.getLogger("own"), torch.ops.own, eval
        helpers = types.ModuleType("own_helpers")
        helpers.LIMIT, helpers.inner = 2.0, types.ModuleType("own_helpers.inner")
        helpers.__getattr__ = lambda name: 2.0

        def limit(module):
            return module.LIMIT

        class Net(nn.Module):
            def forward(self, x):
                return x * float({read})
    """)
    assert program_digest(made(source)) is None


@pytest.mark.parametrize(
    ("place", "name"),
    [
        (F, "leaky_relu"), (torch, "erfinv"), (torch.Tensor, "own"), (nn.Module, "own"), (nn.Conv2d, "_conv_forward"),
        (builtins, "sum"),
    ],
)  # fmt: skip
def test_what_somebody_put_into_torch_counts(place, name, monkeypatch):
    first = program_digest(made())
    monkeypatch.setattr(place, name, lambda *given: given[0] + 1, raising=False)
    second = program_digest(made())
    monkeypatch.setattr(place, name, lambda *given: given[0] + 2, raising=False)
    assert len({first, second, program_digest(made())}) == 3
    monkeypatch.setattr(place, name, torch.tanh, raising=False)
    assert program_digest(made()) not in (first, second)
    monkeypatch.undo()
    assert program_digest(made()) == first


def test_what_torch_is_set_to_counts():
    first = program_digest(made())
    torch.set_default_dtype(torch.float64)
    try:
        assert program_digest(made()) != first
    finally:
        torch.set_default_dtype(torch.float32)
    with torch.device("cpu"):
        assert program_digest(made()) is None


def test_what_torch_does_to_itself_makes_no_difference(tmp_path):
    exported = "torch.export.export(model, (torch.rand(2, 3, 8, 8),), strict=True)"
    code = "import net, torch; from headrace.runtime.graph.program_digest import program_digest; model = net.Net().eval()"
    (tmp_path / "net.py").write_text(SOURCE)
    found = subprocess.run(
        [sys.executable, "-c", f"{code}; print(program_digest(model)); {exported}; print(program_digest(model))"], cwd=tmp_path,
        capture_output=True, text=True, check=True,
    ).stdout.split()  # fmt: skip
    assert found == [program_digest(made())] * 2


def test_a_copy_that_was_made_makes_no_difference(monkeypatch):
    model = made()
    first = program_digest(model)
    assert program_digest(copy.deepcopy(model)) == program_digest(model) == first
    for kind in (torch.Tensor, type(model)):  # where Python keeps it as soon as it copies or pickles one of the class
        monkeypatch.setattr(kind, "__slotnames__", [], raising=False)
    assert program_digest(model) == first


def test_functions_without_gradients_have_a_digest():
    for decorator in ("no_grad", "inference_mode"):
        source = SOURCE.replace("def forward", f"@torch.{decorator}()\n    def forward")
        assert program_digest(made(source)) is not None


def test_what_raises_where_it_is_looked_at_has_none():
    for odd in ("torch.tensor([1j]).conj()", "10**6000", "type('Odd', (), {'__class__': property(lambda self: 1 / 0)})()"):
        assert program_digest(made(SOURCE.replace("self.mask = [1, 2]", f"self.mask = [1, 2]; self.odd = [{odd}]"))) is None


def test_hooks_have_none():
    for place in ("register_forward_hook", "register_forward_pre_hook"):
        model = made()
        getattr(model.body[0], place)(lambda module, *given: None)
        assert program_digest(model) is None
    handle = torch.nn.modules.module.register_module_forward_hook(lambda module, *given: None)
    try:
        assert program_digest(made()) is None
    finally:
        handle.remove()
    assert program_digest(made()) is not None


def test_a_function_of_the_users_other_module_counts():
    helpers = types.ModuleType("own_helpers")
    exec("LIMIT = 3\n\ndef clipped(x):\n    return x.clamp(max=LIMIT)\n", vars(helpers))
    source = SOURCE.replace("self.late(scaled(x))", "helpers.clipped(scaled(x))")
    module = types.ModuleType("net")
    exec(source, vars(module))
    module.helpers = helpers
    before = program_digest(module.Net())
    assert before is not None
    helpers.LIMIT = 4
    assert program_digest(module.Net()) != before


def test_what_reaches_itself_ends():
    model = made()
    model.mask.append(model.mask)
    object.__setattr__(model, "parent", model)
    assert program_digest(model) is not None
