"""The slicer alone: which statements stay."""

import ast
import textwrap

import pytest

from headrace.migrate.reading.calls import Calls
from headrace.migrate.reading.scopes import Repository, reads
from headrace.migrate.reading.source import parse_source
from headrace.migrate.slicing.interprocedural import Point, ProgramSlicer
from headrace.migrate.slicing.liveness import Options
from headrace.migrate.slicing.recipes import write


def sliced(source, name="model", *, checkpoints=True, others=()):
    """The program that computes `name` just before the statement `HERE`."""
    files = [parse_source("main.py", textwrap.dedent(source).encode())]
    files += [parse_source(path, textwrap.dedent(text).encode()) for path, text in dict(others).items()]
    repository = Repository(files)
    module = repository.modules["main.py"]
    here = next(
        node
        for node in module.nodes
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Name) and node.value.id == "HERE"
    )
    program_slicer = ProgramSlicer(repository, Calls(repository), module, Options(checkpoints=checkpoints))
    program = program_slicer.build(Point(module, module.function_of(here), here, ast.parse(name, mode="eval").body))
    return write(program, repository, "", "result").source.strip().splitlines()


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        pytest.param("a = 1\nb = 2\nmodel = f(b)\nHERE", ["b = 2", "model = f(b)"], id="what it reads"),
        pytest.param("model = f()\nmodel = g()\nHERE", ["model = g()"], id="overwritten"),
        pytest.param("model = f()\nmodel.eval()\nmodel.train()\nprint(model)\nHERE", ["model = f()"], id="inert methods"),
        pytest.param(
            "model = f()\nmodel.fc = g()\nmodel.x.y[0] = 1\nHERE",
            ["model = f()", "model.fc = g()", "model.x.y[0] = 1"],
            id="stores",
        ),
        pytest.param("model = f()\nHERE\nmodel.fc = g()", ["model = f()"], id="after the point"),
        pytest.param(
            "if a:\n    model = f()\n    log = 1\nelse:\n    raise ValueError(a)\nHERE",
            ["if a:", "    model = f()", "else:", "    raise ValueError(a)"],
            id="branches",
        ),
        pytest.param(
            "if (model := f()) is None:\n    raise E\nHERE", ["if (model := f()) is None:", "    raise E"], id="bound by a test"
        ),
        pytest.param(
            "log([model := make(name) for name in names])\nHERE",
            ["log([(model := make(name)) for name in names])"],
            id="bound in a comprehension",
        ),
        pytest.param(
            "while (model := f()) is None:\n    log()\nHERE", ["while (model := f()) is None:", "    pass"], id="while"
        ),
        pytest.param("assert (model := f())\nHERE", ["assert (model := f())"], id="bound by an assertion"),
        pytest.param(
            "with (model := f()).lock:\n    log()\nHERE", ["with (model := f()).lock:", "    pass"], id="bound by with"
        ),
        pytest.param("with f() as model:\n    log()\nHERE", ["with f() as model:", "    pass"], id="as"),
        pytest.param(
            "model = None\ndef load():\n    global model\n    model = f()\nload()\nHERE",
            ["model = None", "", "def load():", "    global model", "    model = f()", "load()"],
            id="global",
        ),
        pytest.param(
            "def main():\n    model = None\n    def load():\n        nonlocal model\n        model = f()\n"
            "    load()\n    HERE\nmain()",
            [
                "def main():",
                "    model = None",
                "",
                "    def load():",
                "        nonlocal model",
                "        model = f()",
                "    load()",
                "    return model",
                "result = main()",
            ],
            id="nonlocal",
        ),
        pytest.param("model = f()\nif a:\n    log()\n    x = 2\nHERE", ["model = f()"], id="idle branch"),
        pytest.param(
            "with open(p) as f:\n    c = load(f)\n    d = 1\nmodel = g(c)\nHERE",
            ["with open(p) as f:", "    c = load(f)", "model = g(c)"],
            id="with",
        ),
        pytest.param(
            "try:\n    import fast as lib\nexcept ImportError:\n    import slow as lib\n    warn()\nmodel = lib.f()\nHERE",
            ["try:", "    import fast as lib", "except ImportError:", "    import slow as lib", "model = lib.f()"],
            id="try",
        ),
        pytest.param(
            "for a in archs:\n    model = f(a)\n    for x in loader:\n        HERE",
            ["a = next(iter(archs))", "model = f(a)"],
            id="loop entered once",
        ),
        pytest.param(
            "names = []\nfor k in d:\n    if k:\n        continue\n    names.append(k)\n    log(k)\nmodel = f(names)\nHERE",
            [
                "names = []",
                "for k in d:",
                "    if k:",
                "        continue",
                "    names.append(k)",
                "model = f(names)",
            ],
            id="kept loop keeps its exits",
        ),
        pytest.param(
            "import os, sys\nmodel = f(sys.argv)\nHERE", ["import sys", "model = f(sys.argv)"], id="imports one by one"
        ),
        pytest.param(
            "def f():\n    return K\ndef g():\n    return 1\nK = 3\nmodel = f()\nHERE",
            ["def f():", "    return K", "K = 3", "model = f()"],
            id="globals of functions",
        ),
        pytest.param("n = 0\nn += 1\nmodel = f(n)\nHERE", ["n = 0", "n += 1", "model = f(n)"], id="augmented"),
        pytest.param("if __name__ == '__main__':\n    model = f()\n    HERE", ["model = f()"], id="main guard"),
        pytest.param("model, other = f()\nHERE", ["model, other = f()"], id="unpacked"),
        pytest.param(
            "model = f()\nraw = model.module\nraw.load(x)\nHERE",
            ["model = f()", "raw = model.module", "raw.load(x)"],
            id="aliases",
        ),
    ],
)
def test_statements(source, expected):
    assert sliced(source) == expected


SERVICE = """\
model = None


{mark}{kind}def load():
    global model
    model = f()


@app.route("/")
def predict():
    HERE


if __name__ == "__main__":
    {guarded}
    app.run()
"""
LOAD = ["model = None", "", "{}def load():", "    global model", "    model = f()"]


@pytest.mark.parametrize(
    ("mark", "kind", "guarded", "last"),
    [
        ("", "", "load()", ["if True:", "    load()"]),
        ("@app.before_first_request\n", "", "pass", ["load()"]),
        ('@app.on_event("startup")\n', "async ", "pass", ["__import__('asyncio').run(load())"]),
    ],
)
def test_a_service_has_what_is_made_before_its_first_request(mark, kind, guarded, last):
    found = sliced(SERVICE.format(mark=mark, kind=kind, guarded=guarded))
    assert [line for line in found if not line.startswith("@")] == [line.format(kind) for line in LOAD] + last


def test_attributes_are_needed_one_by_one():
    source = """
        args = parse()
        args.arch = args.name.lower()
        args.epoch = load(path)
        model = build(args.arch)
        HERE
    """
    assert sliced(source) == ["args = parse()", "args.arch = args.name.lower()", "model = build(args.arch)"]


def test_checkpoints_can_be_left_out():
    source = """
        import torch
        model = f()
        if resume:
            state = torch.load(resume)
            print(model.load_state_dict(state))
        HERE
    """
    assert "    model.load_state_dict(state)" in sliced(source)
    assert sliced(source, checkpoints=False) == ["model = f()"]


def test_devices_become_harmless():
    source = """
        import torch
        from torch.nn.parallel import DistributedDataParallel as DDP
        device = torch.device("cuda:%d" % rank)
        model = DDP(f().cuda(rank), device_ids=[rank])
        state = torch.load(path, map_location=lambda s, l: s.cuda())
        model.load_state_dict(state)
        if device == "cuda":
            model = g(model, "cuda")
        HERE
    """
    text = "\n".join(sliced(source))
    assert "torch.nn.DataParallel(f())" in text
    assert "torch.load(path, map_location='cpu')" in text
    assert "device == 'cuda'" in text
    assert "g(model, 'cpu')" in text


def test_training_is_never_part_of_a_slice():
    source = """
        def fit(model):
            for x, y in loader:
                criterion(model(x), y).backward()
            return model

        model = f()
        for epoch in range(3):
            model = fit(model)
        model = fit(model)
        HERE
    """
    assert sliced(source) == ["model = f()"]


def test_frames_return_what_is_needed_and_another_file_becomes_a_function():
    main = """
        from engine import run

        def main(size, data):
            run(data, size + 1)

        main(3, open("data"))
    """
    engine = """
        from .tools import *
        WIDTH = 2

        def run(data, size=1):
            rows = data.read()
            model = net(size, WIDTH)
            for row in rows:
                HERE
    """
    files = [
        parse_source("main.py", textwrap.dedent(main).encode()),
        parse_source("engine.py", textwrap.dedent(engine).encode()),
    ]
    repository = Repository([*files, parse_source("tools.py", b"def net(size, width):\n    return (size, width)\n")])
    module = repository.modules["engine.py"]
    here = next(node for node in module.nodes if isinstance(node, ast.Expr) and isinstance(node.value, ast.Name))
    program_slicer = ProgramSlicer(repository, Calls(repository), repository.modules["main.py"], Options())
    program = program_slicer.build(Point(module, module.function_of(here), here, ast.Name("model", ast.Load())))
    source = write(program, repository, "", "model").source
    assert "open" not in source
    names = {}
    exec(source.replace("from tools import net", "net = lambda size, width: (size, width)"), names)
    assert names["model"] == (4, 2)


def test_reads_see_scopes():
    names = {name for name, _ in reads(ast.parse("def g(p=q):\n    r = s\n    return r + p.t", mode="exec"))}
    assert names == {"q", "s"}
    assert {name for name, _ in reads(ast.parse("[u for u in v if u in w]"))} == {"v", "w"}
    assert ("k", "m") in reads(ast.parse("k.m[0]"))
    assert {name for name, _ in reads(ast.parse("lambda x, y=a: x + z"))} == {"a", "z"}
