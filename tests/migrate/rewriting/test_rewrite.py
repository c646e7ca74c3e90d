"""The rewriting of files: lossless, idempotent, and honest where it does nothing."""

import ast
import textwrap

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headrace.migrate.rewriting.rewrite import rewrite, unified_diff
from headrace.migrate.survey.survey import survey

SCRIPT = '''\
#!/usr/bin/env python
"""Evaluate é中."""
from __future__ import annotations

import os  # keep   me
import torch

graph = os.environ.get("GRAPH")


def evaluate(model, loader,
             device = 'cuda'):
    model.eval()   # inference
    hits = 0
    with torch.no_grad():
        for i, (x, y) in enumerate(loader):
            # "model(x)" is a string; é中 = 1
            s = "é中 model(x)"; out = model(x.to(device))  # trailing
            hits += (out.argmax(1) == y).sum()
    return hits
'''


def migrated(tmp_path, data):
    (tmp_path / "script.py").write_bytes(data)
    return [change for change in rewrite(survey(tmp_path)) if change.changed]


def untouched(before, after):
    """What is left of a rewritten file when the edits are taken back."""
    lines = [line for line in after.splitlines(keepends=True) if b"headrace" not in line]
    return b"".join(lines).replace(b"model_graph(", b"model(").replace(b" graph(", b" model(") == before


@pytest.mark.parametrize("ending", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
@pytest.mark.parametrize("indent", ["    ", "\t", "  "])
def test_every_other_byte_stays(tmp_path, ending, mark, indent):
    text = SCRIPT.replace("    ", indent).replace("\n", ending)
    before = mark + text.encode()
    (change,) = migrated(tmp_path, before)
    assert change.rules == ["PS201"]
    assert untouched(before, change.after)
    ast.parse(change.after)
    added = [line for line in change.after.splitlines(keepends=True) if b"headrace" in line]
    assert [line.strip() for line in added] == [b"import headrace", b"model_graph = headrace.compile(model)"]
    assert all(line.endswith(ending.encode()) for line in added)
    assert migrated(tmp_path, change.after) == []


def test_latin_1_source_stays_latin_1(tmp_path):
    before = SCRIPT.replace("中", "").replace("#!/usr/bin/env python", "# coding: latin-1").encode("latin-1")
    (change,) = migrated(tmp_path, before)
    assert untouched(before, change.after)
    change.after.decode("latin-1")


def test_no_newline_at_the_end(tmp_path):
    before = b"import torch\nmodel = torch.load('m.pt')\nmodel.eval()\nfor x, y in loader: out = model(x)"
    (change,) = migrated(tmp_path, before)
    assert change.after == (
        b"import headrace\nimport torch\nmodel = torch.load('m.pt')\nmodel.eval()\ngraph = headrace.compile(model)\n"
        b"for x, y in loader: out = graph(x)"
    )
    assert "\\ No newline at end of file" in unified_diff([change])


@given(
    junk=st.lists(st.sampled_from(["", "# é", "x = 1;  y = '中'", "if True: pass", "def f(): return 'model(x)'"]), max_size=5),
    ending=st.sampled_from(["\n", "\r\n"]),
)
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
def test_surrounding_code_does_not_matter(tmp_path, junk, ending):
    lines = SCRIPT.splitlines()
    text = ending.join([*lines[:8], *junk, *lines[8:], *junk, ""])
    (change,) = migrated(tmp_path, text.encode())
    assert untouched(text.encode(), change.after)
    assert migrated(tmp_path, change.after) == []


REFUSED = {
    "two arguments": "model(images, masks)",
    "a value that is not written out": "model(images, scale)",
    "several more": "model(images, *options)",
    "list": "model([images])",
    "output by name": "model(images)['out']",
}


@pytest.mark.parametrize("beside", ["features=True", "1.5", "None, sizes=(7, -7)", "temperature=1.5", "mode='scores'"])
def test_constants_beside_the_input_are_handed_to_the_graph(tmp_path, beside):
    source = f"import torch\nmodel = torch.load('m')\nmodel.eval()\nfor x, y in loader:\n    out = model(x, {beside})\n"
    (change,) = migrated(tmp_path, source.encode())
    assert f"    out = graph(x, {beside})\n" in change.after.decode()


@pytest.mark.parametrize("call", ["model(x=x, features=True)", "model(x, temperature=scale)", "model(x, **options)"])
def test_what_may_be_more_than_constants_goes_to_a_step_which_can_call_the_model(tmp_path, call):
    source = f"import torch\nmodel = torch.load('m')\nmodel.eval()\nfor x, y in loader:\n    out = {call}\n"
    (change,) = migrated(tmp_path, source.encode())
    assert f"    out = eval_step{call.removeprefix('model')}\n" in change.after.decode()


@pytest.mark.parametrize("call", REFUSED.values(), ids=REFUSED)
def test_calls_that_a_graph_cannot_take_are_remarked(tmp_path, call):
    source = f"import torch\n\n\ndef run(model):\n    model.eval()\n    for images, labels in loader:\n        out = {call}\n"
    (tmp_path / "a.py").write_text(source)
    (change,) = rewrite(survey(tmp_path))
    assert not change.changed
    assert [finding.fix for finding in change.findings] == ["manual"]


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ("model.register_forward_hook(print)", "hooks"),
        ("model.half()", "half precision"),
        ("headrace = 3", "headrace"),
    ],
)
def test_reasons_to_stay_eager(tmp_path, more, reason):
    source = (
        f"import torch\nmodel = torch.load('m')\nmodel.eval()\n{more}\nfor images, labels in loader:\n    out = model(images)\n"
    )
    (tmp_path / "a.py").write_text(source)
    (change,) = rewrite(survey(tmp_path), select=["PS2"])
    assert not change.changed
    assert reason in change.findings[0].message


def test_a_model_never_put_in_evaluation_mode_needs_unsafe(tmp_path):
    (tmp_path / "a.py").write_text(
        "import torch\nmodel = torch.load('m')\nfor images, labels in loader:\n    out = model(images)\n"
    )
    surveyed = survey(tmp_path)
    (change,) = rewrite(surveyed, select=["PS2"])
    assert not change.changed
    assert change.findings[0].fix == "unsafe"
    (change,) = rewrite(surveyed, select=["PS2"], unsafe=True)
    assert change.changed
    assert change.findings[0].fix == "applied"


@pytest.mark.parametrize(("layer", "fix"), [("Conv2d(3, 4, 3)", "applied"), ("BatchNorm2d(3)", "unsafe")])
def test_a_model_that_knows_no_mode_needs_not_be_put_in_one(tmp_path, layer, fix):
    (tmp_path / "a.py").write_text(
        "import torch\nclass Net(torch.nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        f"        self.layer, self.head = torch.nn.{layer}, torch.nn.Linear(4, 2)\n"
        "    def forward(self, x):\n        return self.head(self.layer(x).mean((2, 3)))\n"
        "net = Net()\nnet = net.to('cpu')\nnet.load_state_dict(torch.load('a.pt'))\n"
        "for images, labels in loader:\n    out = net(images)\n"
    )
    (change,) = rewrite(survey(tmp_path), select=["PS2"])
    assert [finding.fix for finding in change.findings] == [fix]


@pytest.mark.parametrize(
    ("other", "fix"),
    [
        ("def main():\n    net.eval()\n    net(1)\nmain()\n", "unsafe"),  # a main of its own
        ("from a import main\nnet.eval()\nmain(net)\n", "applied"),
        ("import a\nnet.eval()\na.main(net)\n", "applied"),
        ("net.eval()\nself.engine.main(net)\n", "applied"),  # which nobody can follow
    ],
)
def test_a_call_by_the_same_name_puts_another_model_in_evaluation_mode(tmp_path, other, fix):
    (tmp_path / "a.py").write_text(
        "import torch\ndef main(model):\n    for images, labels in loader:\n        out = model(images)\n"
    )
    (tmp_path / "b.py").write_text(f"import torch\n{other}")
    changes = rewrite(survey(tmp_path), select=["PS2"], unsafe=False)
    (finding,) = (item for change in changes if change.path == "a.py" for item in change.findings)
    assert finding.fix == fix


@pytest.mark.parametrize(("made", "fix"), [("torch.load('a.pt').eval()", "applied"), ("torch.load('a.pt')", "unsafe")])
def test_a_model_that_is_handed_over_is_as_what_makes_it_leaves_it(tmp_path, made, fix):
    for name in ("small", "large"):
        (tmp_path / f"{name}.py").write_text(f"import torch\ndef load_model():\n    model = {made}\n    return model\n")
    (tmp_path / "a.py").write_text(
        "import large, small, torch\n\n\ndef predict(model, loader):\n    for images, labels in loader:\n"
        "        out = model(images)\n\n\ndef run(name, model):\n    predict(model, loader)\n\n\n"
        "for module in (small, large):\n    run('a', module.load_model())\n"
    )
    changes = rewrite(survey(tmp_path), select=["PS2"], unsafe=False)
    (finding,) = (item for change in changes if change.path == "a.py" for item in change.findings)
    assert finding.fix == fix


@pytest.mark.parametrize(("made", "fix"), [("net.to('cpu').eval()", "applied"), ("net", "unsafe")])
@pytest.mark.parametrize("other", ["", "class Other:\n    def __init__(self):\n        self.net = Ready.load()\n\n\n"])
def test_what_an_object_holds_is_as_the_class_method_that_makes_it_leaves_it(tmp_path, made, other, fix):
    (tmp_path / "net.py").write_text(
        "import torch\nfrom torch import nn\n\n\nclass Net(nn.Module):\n    def __init__(self, num_classes):\n"
        "        super().__init__()\n        self.conv = nn.Conv2d(3, 4, 3)\n        self.fc = nn.Linear(4, num_classes)\n\n"
        "    def forward(self, x):\n        return self.fc(self.conv(x).mean((2, 3)))\n\n"
        f"    @classmethod\n    def load(cls, path):\n        net = cls(3)\n        return {made}\n\n\n"
        "class Ready(Net):\n    @classmethod\n    def load(cls):\n        return cls(3).eval()\n"
    )
    (tmp_path / "a.py").write_text(
        f"import torch\nfrom net import Net, Ready\n\n\n{other}class Engine:\n    def __init__(self):\n"
        "        self.net = Net.load('a.pt')\n\n    @torch.no_grad()\n    def classify(self, image):\n"
        "        return self.net(image).argmax(1)\n\n\nprint(Engine().classify(torch.rand(1, 3, 8, 8)))\n"
    )
    changes = rewrite(survey(tmp_path), select=["PS2"], unsafe=False)
    (finding,) = (item for change in changes if change.path == "a.py" for item in change.findings)
    assert finding.fix == fix


def test_training_elsewhere_gives_the_shared_evaluation_a_step_of_its_own(tmp_path):
    (tmp_path / "engine.py").write_text(
        "import torch\n\n\ndef evaluate(model, loader):\n    model.eval()\n    for x, y in loader:\n        out = model(x)\n"
    )
    (tmp_path / "main.py").write_text(
        textwrap.dedent("""
            import torch
            from engine import evaluate

            def main():
                model = Net()
                for epoch in range(3):
                    for x, y in loader:
                        loss(model(x), y).backward()
                    evaluate(model, loader)

            if __name__ == "__main__":
                main()
        """)
    )
    changes = {change.path: change for change in rewrite(survey(tmp_path))}
    assert not changes["main.py"].changed
    assert b"    eval_step = headrace.evaluation_step(model)\n    for x, y in loader:\n        out = eval_step(x)\n" in (
        changes["engine.py"].after
    )
    assert {finding.code for change in changes.values() for finding in change.findings} == {"PS203", "PS303"}


TRAIN_AND_TEST = """
import torch

def test(model, loader):
    model.eval()
    with torch.no_grad():
        for x, y in loader:
            out = model(x)

def main():
    model = Net()
    for epoch in range(3):
        for x, y in loader:
            loss(model(x), y).backward()
{indent}test(model, loader)

if __name__ == "__main__":
    main()
"""


@pytest.mark.parametrize(("indent", "code", "made"), [("    ", "PS201", b"compile"), ("        ", "PS203", b"evaluation_step")])
def test_an_evaluation_after_the_last_epoch_has_its_graph_and_one_in_each_epoch_a_step(tmp_path, indent, code, made):
    (tmp_path / "main.py").write_text(TRAIN_AND_TEST.format(indent=indent))
    (change,) = rewrite(survey(tmp_path), select=["PS2"])
    assert change.rules == [code]
    assert [finding.code for finding in change.findings] == [code]
    assert b"= headrace." + made + b"(" in change.after
    (tmp_path / "main.py").write_bytes(change.after)
    assert not any(item.changed for item in rewrite(survey(tmp_path), select=["PS2"]))


def test_bad_files_beside_good_ones(tmp_path):
    (tmp_path / "broken.py").write_bytes(b"def (:\n")
    (tmp_path / "bytes.py").write_bytes(b"x = '\xff\xfe'\n")
    (change,) = migrated(tmp_path, SCRIPT.encode())
    assert change.path == "script.py"


@pytest.mark.parametrize(
    "loop",
    [
        "outs = list(map(lambda model: model(x), models))",
        "with opened() as model:\n        out = model(x)",
    ],
)
def test_a_model_that_a_loop_binds_has_no_graph_before_it(tmp_path, loop):
    (tmp_path / "a.py").write_text(f"import torch\n\n\ndef run(models, x):\n    models[0].eval()\n    {loop}\n")
    (change,) = rewrite(survey(tmp_path))
    assert not change.changed
    assert "binds the model's name" in change.findings[0].message


@pytest.mark.parametrize(
    ("loop", "migrated"),
    [
        (
            "for model in models:\n        out = model(x)",
            "for model in models:\n        eval_step = headrace.evaluation_step(model)\n        out = eval_step(x)",
        ),
        (
            "for i, model in enumerate(models):\n        for x, y in loader:\n            out = model(x)",
            "for i, model in enumerate(models):\n        eval_step = headrace.evaluation_step(model)\n"
            "        for x, y in loader:\n            out = eval_step(x)",
        ),
        ("outs = [model(x) for model in models]", "outs = [headrace.evaluation_step(model)(x) for model in models]"),
        (
            "total = sum(w * model(x) for w, model in zip(weights, models))",
            "total = sum(w * headrace.evaluation_step(model)(x) for w, model in zip(weights, models))",
        ),
    ],
)
def test_each_of_several_models_that_a_loop_takes_has_its_own_step(tmp_path, loop, migrated):
    (tmp_path / "a.py").write_text(f"import torch\n\n\ndef run(models, x):\n    models[0].eval()\n    {loop}\n")
    (change,) = rewrite(survey(tmp_path))
    assert (
        change.after.decode()
        == f"import headrace\nimport torch\n\n\ndef run(models, x):\n    models[0].eval()\n    {migrated}\n"
    )


def test_two_models_never_share_a_graph(tmp_path):
    (tmp_path / "a.py").write_text(
        textwrap.dedent("""
            import torch

            def compare(teacher, student, loader):
                teacher.eval()
                student.eval()
                for x, y in loader:
                    a, b = teacher(x), student(x)

            class Chain:
                def __init__(self, trunk, head):
                    self.trunk, self.head_model = trunk.eval(), head.eval()

                def predict(self, x):
                    return self.head_model(self.trunk(x))
        """)
    )
    (change,) = rewrite(survey(tmp_path), unsafe=True)
    after = change.after.decode()
    assert "a, b = teacher_graph(x), student_graph(x)" in after
    assert "teacher_graph = headrace.compile(teacher)" in after
    assert "student_graph = headrace.compile(student)" in after
    assert "self.graph = headrace.compile(self.head_model)" in after, "self.trunk is a model by name only with evidence"


def test_a_network_whose_base_is_not_here_is_left_alone(tmp_path):
    source = textwrap.dedent("""
        import torch
        from mmengine.model import BaseModule

        class Backbone(BaseModule):
            def __init__(self):
                super().__init__()
                self.model = build()
                self.model.eval()

            def forward(self, x):
                for stage_model in self.stages:
                    x = stage_model(x)
                return self.model(x)

        class Child(Backbone):
            def extract_feat(self, x):
                return self.model(x)
    """)
    (tmp_path / "a.py").write_text(source)
    assert rewrite(survey(tmp_path)) == []


ANEW = {
    "made twice": """
        model = A().eval()
        for x, y in loader:
            model(x)
        model = B().eval()
        for x, y in loader:
            model(x)
    """,
    "swapped in the loop": """
        model = A().eval()
        for x, y in loader:
            model(x)
            model = swap(model)
    """,
    "a parameter replaced": """
        for x, y in loader:
            model(x).eval()
        if loader:
            model = B()
        return model(loader)
    """,
}


@pytest.mark.parametrize("body", ANEW.values(), ids=ANEW)
def test_a_name_that_stands_for_two_models_gets_no_graph(tmp_path, body):
    function = textwrap.indent(textwrap.dedent(body), "    ")
    (tmp_path / "a.py").write_text(f"import torch\n\n\ndef run(loader, model):\n{function}")
    (change,) = rewrite(survey(tmp_path), unsafe=True)
    assert not change.changed
    assert "another model" in change.findings[0].message


HELD = {
    "None at first": """
        class Engine:
            def __init__(self):
                self.model = None

            @torch.no_grad()
            def predict(self, x):
                self.model.eval()
                return self.model(x)
    """,
    "set by another method": """
        class Engine:
            def generate(self):
                self.model = torch.load("model.pt").eval()
                self.model = torch.nn.DataParallel(self.model)

            def predict(self, x):
                with torch.no_grad():
                    return torch.softmax(self.model(x)[0], dim=-1)
    """,
    "a global that a function sets": """
        model = None

        def load():
            global model
            model = torch.load("model.pt").eval()

        @torch.inference_mode()
        def predict(image):
            return model(image).argmax(1)
    """,
    "another object's": """
        def predict(engine, image):
            with torch.no_grad():
                return engine.model(image).argmax(1)
    """,
}


@pytest.mark.parametrize("source", HELD.values(), ids=HELD)
def test_a_model_that_something_holds_gets_a_step_of_its_own_where_it_is_called(tmp_path, source):
    text = f"import torch\n{textwrap.dedent(source)}"
    (tmp_path / "a.py").write_text(text)
    (change,) = rewrite(survey(tmp_path))
    after = change.after.decode()
    held = next(name for name in ("engine.model", "self.model", "model") if f"{name}(" in text)
    assert f"eval_step = headrace.evaluation_step({held})\n" in after
    assert f"{held}(" not in after
    assert "eval_step(" in after


@pytest.mark.parametrize("call", ["model(pixel_values=images)", "model(**inputs)"])
def test_a_model_that_gets_its_input_by_name_gets_a_step(tmp_path, call):
    source = f"""
        import torch
        from transformers import AutoModelForImageClassification

        model = AutoModelForImageClassification.from_pretrained("somebody/classifier").eval()

        @torch.no_grad()
        def classify(inputs, images):
            return {call}.logits.argmax(-1)

        def evaluate(loader):
            correct = 0
            with torch.no_grad():
                for images, labels in loader:
                    inputs = {{"pixel_values": images}}
                    correct += ({call}.logits.argmax(-1) == labels).sum()
            return correct
    """
    (tmp_path / "a.py").write_text(textwrap.dedent(source))
    (change,) = rewrite(survey(tmp_path))
    after = change.after.decode()
    assert after.count("eval_step = headrace.evaluation_step(model)\n") == 2
    assert after.count(call.replace("model", "eval_step", 1)) == 2


def test_an_attack_on_a_held_model_stays_as_it_is(tmp_path):
    source = """
        import torch

        class Attack:
            def fool(self, image):
                image.requires_grad_()
                return torch.autograd.grad(self.model(image).sum(), image)[0]
    """
    (tmp_path / "a.py").write_text(textwrap.dedent(source))
    (change,) = rewrite(survey(tmp_path))
    assert not change.changed


@pytest.mark.parametrize(
    ("frozen", "rewritten"),
    [
        ("model.eval().requires_grad_(False)", True),
        ("model.eval()\n    for p in model.parameters():\n        p.requires_grad = False", True),
        ("model.eval().requires_grad_()", False),
        ("model.eval()\n    images.requires_grad = True", False),
    ],
)
def test_a_model_whose_gradients_are_turned_off_gets_its_graph(tmp_path, frozen, rewritten):
    (tmp_path / "a.py").write_text(
        "import torch\n\ndef main(images, loader):\n    model = torch.load('m')\n"
        f"    {frozen}\n    for x, y in loader:\n        out = model(x)\n        print(out.argmax(1))\n"
    )
    (change,) = rewrite(survey(tmp_path))
    assert ("graph = headrace.compile(model)" in change.after.decode()) is rewritten


@pytest.mark.parametrize("surgery", ["model.fc = torch.nn.Linear(512, 2)", "model.classifier[6] = torch.nn.Linear(512, 2)"])
def test_a_new_head_comes_before_the_graph(tmp_path, surgery):
    (tmp_path / "a.py").write_text(
        f"import torch\nmodel = torch.load('m')\nmodel.eval()\n{surgery}\nfor x, y in loader:\n    out = model(x)\n"
    )
    (change,) = rewrite(survey(tmp_path))
    assert f"{surgery}\ngraph = headrace.compile(model)\n" in change.after.decode()


@pytest.mark.parametrize("path", ["test_net.py", "net_test.py", "tests/net.py", "test/models.py"])
def test_tests_stay_as_they_are(tmp_path, path):
    method = "    def test_shape(self):\n        model = Net().eval()\n        y = model(load())\n"
    source = f"import torch\n\n\nclass NetTest(TestCase):\n{method}"
    (tmp_path / path).parent.mkdir(exist_ok=True)
    (tmp_path / path).write_text(source)
    assert rewrite(survey(tmp_path), unsafe=True) == []


def test_the_import_comes_before_the_graph(tmp_path):
    source = (
        "from nets import Net\nmodel = Net().eval()\nimport torch\nimport late\nfor x, y in late.loader:\n    out = model(x)"
    )
    (tmp_path / "a.py").write_text(source)
    (change,) = rewrite(survey(tmp_path))
    assert change.after.decode().startswith(
        "from nets import Net\nimport headrace\nmodel = Net().eval()\ngraph = headrace.compile(model)\n"
    )


@pytest.mark.parametrize(
    "head", ["from app import model\nimport io\n\nimport torch\n", "import torch\nfrom app import model\nimport io\n"]
)
def test_a_model_that_is_imported_has_its_graph_below_the_imports_and_below_that_of_headrace(tmp_path, head):
    (tmp_path / "app.py").write_text("import torchvision\nmodel = torchvision.models.resnet18()\nmodel.eval()\n")
    body = "\n\ndef predict(x):\n    with torch.no_grad():\n        return model(x).argmax(1)\n"
    (tmp_path / "web.py").write_text(head + body)
    changes = {str(change.path): change.after.decode() for change in rewrite(survey(tmp_path))}
    (web,) = (after for path, after in changes.items() if path.endswith("web.py"))
    assert web == f"import headrace\n{head}graph = headrace.compile(model)\n{body.replace('model(x)', 'graph(x)')}"


BELOW = {
    "of a module": (
        "net = torch.load('m'); net.eval()\nfor x, y in loader:\n    out = net(x)\n",
        "net = torch.load('m'); net.eval()\ngraph = headrace.compile(net)\nfor x, y in loader:\n    out = graph(x)\n",
    ),
    "of a function": (
        "def run():\n    net = torch.load('m'); net.eval(); hits = 0  # yet\n    for x, y in loader:\n        out = net(x)\n",
        "    net = torch.load('m'); net.eval(); hits = 0  # yet\n    graph = headrace.compile(net)\n    for x, y in loader:\n",
    ),
    "below an if of one line": (
        "net = torch.load('m')\nif late: net = torch.load('n'); net.eval()\nfor x, y in loader: out = net(x)\n",
        "if late: net = torch.load('n'); net.eval()\ngraph = headrace.compile(net)\nfor x, y in loader: out = graph(x)\n",
    ),
}


@pytest.mark.parametrize(("before", "after"), BELOW.values(), ids=BELOW)
def test_a_graph_is_made_below_a_line_of_several_statements(tmp_path, before, after):
    (change,) = migrated(tmp_path, f"import torch\n{before}".encode())
    assert after in change.after.decode()


def test_a_call_in_the_line_that_makes_its_model_stays(tmp_path):
    (tmp_path / "a.py").write_text("import torch\nnet = torch.load('m'); net.eval(); out = [net(x) for x, y in loader]\n")
    assert not any(change.changed for change in rewrite(survey(tmp_path), select=["PS2"]))
