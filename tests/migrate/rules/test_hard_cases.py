"""Rules on what is particular to them, beyond their own examples."""

import ast

import pytest

from headrace.migrate.rewriting.rewrite import rewrite
from headrace.migrate.survey.survey import survey

HEAD = "import torch\n"


def run(tmp_path, source, code, **options):
    """The source after one rule, and its findings."""
    (tmp_path / "a.py").write_text(HEAD + source)
    changes = rewrite(survey(tmp_path), select=[code], **options)
    if not changes:
        return source, []
    return changes[0].after.decode().removeprefix(HEAD), changes[0].findings


def after(tmp_path, source, code, **options):
    return run(tmp_path, source, code, **options)[0]


@pytest.mark.parametrize(
    ("before", "expected"),
    [
        ("print 1", "print(1)"),
        ("print", "print()"),
        ("print 'a',", "print('a', end=\" \")"),
        ("print 'a' % (1,\n   2)", "print('a' % (1,\n   2))"),
        ("print >> f, 'a', b", "print('a', b, file=f)"),
        ("print >>f", "print(file=f)"),
        ("print >>f, a,", 'print(a, end=" ", file=f)'),
        ("if x: print y; print z", "if x: print(y); print(z)"),
        ("if d[1:2]: print lambda: 3", "if d[1:2]: print(lambda: 3)"),
        ("print (1, 2), 3  # print 4", "print((1, 2), 3)  # print 4"),
        ("print 'é', \"print 'x'\"", "print('é', \"print 'x'\")"),
        ("print 1, \\\n  2", "print(1, \\\n  2)"),
        ("print -1", "print(-1)"),
        ("for x in y: print x,", 'for x in y: print(x, end=" ")'),
        ("print ('%d' % 3)", "print ('%d' % 3)"),
    ],
)
def test_print_statements(tmp_path, before, expected):
    unparsable = "\nprint 'this makes the file one of Python 2'\n"
    found = after(tmp_path, before + unparsable, "PS102")
    assert found == f"{expected}\nprint('this makes the file one of Python 2')\n"
    ast.parse(found)


@pytest.mark.parametrize("line", ["print('a'))", "if x:\n    print('a'))", "print(['a'])]"])
def test_a_call_with_a_bracket_too_many_is_no_print_statement(tmp_path, line):
    assert "PS102" not in {finding.code for finding in run(tmp_path, f"import torch\n{line}\n", "PS102")[1]}


def test_an_evaluation_that_only_a_training_program_reaches_says_which(tmp_path):
    training = "for images, labels in loader:\n    criterion(net(images), labels).backward()\n    optimizer.step()\n"
    (tmp_path / "main.py").write_text(f"import torch\nfrom look import look\nnet = Net()\n{training}print(look(image))\n")
    (tmp_path / "look.py").write_text(
        "import torch\nfrom torchvision.models import resnet18\n\nmodel = resnet18()\nmodel.eval()\n\n\n"
        "def look(image):\n    with torch.no_grad():\n        output = model(image.unsqueeze(0))\n    return output.argmax(1)\n"
    )
    findings = [item for change in rewrite(survey(tmp_path), select=["PS203"]) for item in change.findings]
    (message,) = [item.message for item in findings if item.path == "look.py"]
    assert message == "the prediction calls model eagerly, and main.py, which runs it, also trains"


@pytest.mark.parametrize(
    ("before", "expected"),
    [
        ("try:\n    x = 0777\nexcept (A, B), e:\n    pass\n", "try:\n    x = 0o777\nexcept (A, B) as e:\n    pass\n"),
        ("raise E, 'a %s' % (1, 2)\n", "raise E('a %s' % (1, 2))\n"),
        ("x = 0777 + 10L + 0xFFL - 0\n", "x = 0o777 + 10 + 0xFF - 0\n"),
        ("x = ur'a' + `b`\n", "x = r'a' + repr(b)\n"),
        ("if a <> b:\n    exec code\n", "if a != b:\n    exec(code)\n"),
    ],
)
def test_old_syntax(tmp_path, before, expected):
    assert after(tmp_path, before, "PS103") == expected


def test_a_tuple_of_classes_without_brackets_is_no_name_for_the_error(tmp_path):
    source = HEAD + "try:\n    pass\nexcept OSError, ValueError:\n    pass\n"  # of Python 3.14
    (tmp_path / "a.py").write_text(source)
    assert [change.after.decode() for change in rewrite(survey(tmp_path), select=["PS103"])] in ([], [source])


def test_all_of_python_2_at_once(tmp_path):
    source = "try:\n    print x.cuda(async=True)\nexcept IOError, e:\n    print `e`\n"
    (tmp_path / "a.py").write_text(HEAD + source)
    (change,) = rewrite(survey(tmp_path), select=["PS1"])
    assert change.after.decode() == HEAD + (
        "try:\n    print(x.cuda(non_blocking=True))\nexcept IOError as e:\n    print(repr(e))\n"
    )


@pytest.mark.parametrize(
    ("before", "expected"),
    [
        ("def f(x):\n    x = V(x)\n", "def f(x):\n    x = x\n"),
        ("def f(x):\n    x = V(x)\n    return x\n", "def f(x):\n    return x\n"),
        ("y = V(a + b)[0], V(lambda: 3), V(a if b else c) * 2\n", "y = (a + b)[0], (lambda: 3), (a if b else c) * 2\n"),
        ("y = V(a +\n      b)\n", "y = (a +\n      b)\n"),
        ("with torch.no_grad():\n    y = V(a, volatile=True)\n", "with torch.no_grad():\n    y = a\n"),
        ("y = V(a, volatile=False)\n", "y = a\n"),
        (
            "def f(x):\n    x = V(x, volatile=True).cuda()\n    x.backward()\n",
            "def f(x):\n    x = x.cuda()\n    x.backward()\n",
        ),
        (
            "def main(x):\n    x = V(x, volatile=True) + 1\n    train(x)\n",
            "def main(x):\n    x = x + 1\n    train(x)\n",
        ),
        (
            "class A:\n    def f(self, x):\n        return V(x, volatile=True)\n",
            "class A:\n    @torch.no_grad()\n    def f(self, x):\n        return x\n",
        ),
        # Where it holds only sometimes, and in what a network is trained by, nothing turns gradients off.
        ("def f(x, y):\n    return V(x, volatile=not y) * 2\n", "def f(x, y):\n    return x * 2\n"),
        ("def forward(self, x):\n    return V(x, volatile=True) * 2\n", "def forward(self, x):\n    return x * 2\n"),
    ],
)
def test_variables(tmp_path, before, expected):
    assert after(tmp_path, "from torch.autograd import Variable as V\n" + before, "PS110") == expected


def test_where_a_name_is_that_an_import_does_not_find_is_told(tmp_path):
    files = {
        "main.py": "from nets import Net, gone\n\ndef build():\n    return Net(), gone()\n",
        "nets/__init__.py": "import torch\n",
    }
    files |= {"nets/net.py": "import torch\n\nclass Net(torch.nn.Module):\n    pass\n"}
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(f"import torch\n{text}")
    (change,) = rewrite(survey(tmp_path), select=["PS139"])
    (found,) = change.findings
    assert found.message.endswith(
        "no Net, gone, so this import fails; it is left out (nets/net.py has a Net: import it from there)"
    )


def test_a_variable_inside_of_an_f_string_keeps_its_import(tmp_path):
    source = "from torch.autograd import Variable\nx = Variable(y)\ns = f'{Variable(x)}'\n"
    assert after(tmp_path, source, "PS110") == source.replace("x = Variable(y)", "x = y")


def test_a_loss_that_is_propagated_is_a_number(tmp_path):
    source = (
        "def train(model, criterion):\n    loss = criterion(model(x), y)\n    loss.backward()\n\n\n"
        "def test(model, criterion):\n    loss = criterion(model(x), y)\n    return loss.data[0]\n"
    )
    assert after(tmp_path, source, "PS112") == source.replace("loss.data[0]", "loss.item()")


def test_cuda_moves_to_one_device(tmp_path):
    source = (
        "from torch import nn\n\nmodel = nn.Linear(2, 2).cuda()\ncriterion = nn.MSELoss().cuda()\n"
        "if torch.cuda.is_available():\n    model = model.cuda()\ny = y.cuda(non_blocking=True)\n"
    )
    found = after(tmp_path, source, "PS601", unsafe=True)
    assert found == (
        'from torch import nn\ndevice = torch.device("cuda" if torch.cuda.is_available() else "cpu")\n\n'
        "model = nn.Linear(2, 2).to(device)\ncriterion = nn.MSELoss().to(device)\n"
        "if torch.cuda.is_available():\n    model = model.cuda()\ny = y.to(device, non_blocking=True)\n"
    )
    assert after(tmp_path, found, "PS601", unsafe=True) == found


def test_cuda_uses_the_device_that_is_there(tmp_path):
    source = 'device = "cuda" if torch.cuda.is_available() else "cpu"\nmodel = model.cuda()\n'
    assert after(tmp_path, source, "PS601", unsafe=True) == source.replace(".cuda()", ".to(device)")


def test_amp_keeps_what_it_cannot_see(tmp_path):
    source = "from torch.cuda.amp import autocast\n\n\n@autocast\ndef f():\n    pass\n\n\nwith autocast():\n    pass\n"
    assert run(tmp_path, source, "PS115") == (source, [])


def test_a_float_divisor_needs_unsafe(tmp_path):
    source = "def f(x, ratio):\n    return x[: int(x.shape[0] / ratio)]\n"
    found, (finding,) = run(tmp_path, source, "PS801")
    assert (found, finding.fix) == (source, "unsafe")


@pytest.mark.parametrize(
    "quotient",
    ["int(x.shape[0] / n)", "int(x.shape[0] / (n * m / k))", "int(x.size(0) * m / n) + 1", "-int(len(x) / n / m)"],
)
def test_integer_division_is_what_the_float_was(tmp_path, quotient):
    source = f"def f(x, n: int, m: int, k: int):\n    return {quotient}\n"
    found = after(tmp_path, source, "PS801")
    assert "int(" not in found
    old, new = {}, {}
    exec(source, old)
    exec(found, new)

    class Rows:
        def __init__(self, rows):
            self.shape = (rows,)

        def size(self, index):
            return self.shape[index]

        def __len__(self):
            return self.shape[0]

    for rows in (1, 2, 7, 64, 98, 1000):
        for n, m, k in ((7, 7, 7), (3, 5, 2), (8, 8, 4), (1, 9, 3)):
            assert old["f"](Rows(rows), n, m, k) == new["f"](Rows(rows), n, m, k)


def test_roots_agree_everywhere(tmp_path):
    source = "import math\n\n\ndef f(x):\n    return int(math.sqrt(x.shape[1])), int(x.shape[1] ** 0.5)\n"
    found = after(tmp_path, source, "PS802")
    assert found.count("math.isqrt(x.shape[1])") == 2
    old, new = {}, {}
    exec(source, old)
    exec(found, new)
    for side in range(200):
        for tokens in (side * side - 1, side * side, side * side + 1):
            rows = type("Rows", (), {"shape": (1, max(tokens, 0))})
            assert old["f"](rows) == new["f"](rows)


def test_the_default_of_a_field_is_a_dataclass_of_another_file(tmp_path):
    kinds = "@dataclass\nclass Data:\n    size: int = 1\n@dataclass(eq=False)\nclass Plain:\n    a: int = 1\n"
    kinds = f"from dataclasses import dataclass\n{kinds}"
    (tmp_path / "kinds.py").write_text(HEAD + kinds)
    source = (
        "import dataclasses\nimport kinds\nfrom kinds import Data, Plain\nSIDE = 2\n@dataclasses.dataclass\nclass All:\n"
        "    side: int = 3\n    a: Data = Data()\n    b: Data = kinds.Data(SIDE)\n    c: Plain = Plain()\n"
        "    d: Data = Data(side)\n"
    )
    found, remarks = run(tmp_path, source, "PS137")
    expected = source.replace("= Data()", "= dataclasses.field(default_factory=Data)")
    expected = expected.replace("= kinds.Data(SIDE)", "= dataclasses.field(default_factory=lambda: kinds.Data(SIDE))")
    assert found == expected
    assert [(item.line, item.fix) for item in remarks] == [
        (9, "applied"),
        (10, "applied"),
        (12, "manual"),
    ]  # the class has side


def test_the_working_folder_is_no_installed_package(tmp_path, monkeypatch):
    (tmp_path / "nets").mkdir()
    (tmp_path / "nets/__init__.py").write_text(HEAD + "from vgg import *\n")
    (tmp_path / "nets/vgg.py").write_text(HEAD)
    (tmp_path / "main.py").write_text(HEAD + "from nets import vgg, huge\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    changes = {change.path: change.after.decode() for change in rewrite(survey(tmp_path), select=["PS138", "PS139"])}
    assert changes == {
        "nets/__init__.py": HEAD + "from .vgg import *\n",
        "main.py": HEAD + "from nets import vgg\n",
    }


def test_a_package_whose_file_is_run_as_it_is_keeps_its_imports(tmp_path):
    """Nothing but a guard says that it is run: `python main.py` in that folder finds what lies beside."""
    (tmp_path / "src").mkdir()
    (tmp_path / "src/__init__.py").touch()
    (tmp_path / "src/nets.py").write_text(HEAD)
    (tmp_path / "src/train.py").write_text(HEAD + "from nets import Net\n")
    (tmp_path / "src/main.py").write_text("from train import Net\nif __name__ == '__main__':\n    print(Net())\n")
    assert rewrite(survey(tmp_path), select=["PS138"]) == []


def test_an_installed_package_is_meant_before_a_file_beside(tmp_path):
    (tmp_path / "nets").mkdir()
    (tmp_path / "nets/__init__.py").write_text(HEAD + "from numpy import array\nimport json\n")
    for name in ("numpy", "json"):
        (tmp_path / f"nets/{name}.py").write_text(HEAD)
    assert rewrite(survey(tmp_path), select=["PS138", "PS139"]) == []


VIEWS = """\
def test(model, loader, criterion, views):
    model.eval()
    with torch.no_grad():
        for images, labels in loader:
            total = criterion(model(images), labels)
            for view in views:
                batch = view(images)
                total += model(batch).softmax(1).sum()
    return total

def train(model, loader, criterion, optimizer):
    for images, labels in loader:
        criterion(model(images), labels).backward()
        optimizer.step()
"""


def test_a_loop_in_a_loop_has_the_outer_ones_step(tmp_path):
    found = after(tmp_path, VIEWS, "PS203")
    assert found.count("headrace.evaluation_step(model)") == 1
    assert found.count("eval_step(") == 2
    ast.parse(found)
    other = VIEWS.replace("                batch = view", "                model = view.model\n                batch = view")
    text = after(tmp_path, other, "PS203")
    assert text.count("headrace.evaluation_step(model)") == 2  # another model in each round
