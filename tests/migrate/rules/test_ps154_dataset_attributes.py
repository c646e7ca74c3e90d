"""PS154: what is one of torchvision's sets, and what is not; and that the new names hold what the old ones did."""

import pickle

import pytest

from headrace.migrate.rewriting.rewrite import choose_rules, rewrite_all
from headrace.migrate.survey.survey import survey

HEAD = "import torch\nfrom torch.utils.data import DataLoader, Subset, random_split\nfrom torchvision import datasets\n\n"
OLD = ("train_data", "train_labels", "test_data", "test_labels")


def changes_of(folder, **sources):
    for name, source in sources.items():
        (folder / f"{name}.py").write_text(HEAD + source)
    return {change.path: change for change in rewrite_all(survey(folder), rules=choose_rules(["PS154"])).changes}


def after(folder, source, **others):
    change = changes_of(folder, a=source, **others).get("a.py")
    return source if change is None else change.after.decode().removeprefix(HEAD)


def today(source):
    for old, new in (("train_data", "data"), ("test_data", "data"), ("train_labels", "targets"), ("test_labels", "targets")):
        source = source.replace(f".{old}", f".{new}")
    return source


SETS = [
    "x = datasets.CIFAR10('d').train_data\n",
    "x = datasets.cifar.CIFAR100('d').test_labels\n",
    "import torchvision\nx = torchvision.datasets.CIFAR10('d')\nx.train_labels[3] = 1\ndel x.train_data\n",
    "import torchvision.datasets as dset\nx: object = dset.CIFAR10('d')\nx.train_labels += [1]\n",
    "from torchvision.datasets import CIFAR10 as C\n\n\ndef f():\n    x, y = C('d'), C('d', train=False)\n"
    "    return x.train_data, y.test_data\n",
    "x = datasets.MNIST('d')\nprint(x.train_labels.float(), x\n      .train_data)\n",
    "if big:\n    kind = datasets.CIFAR100\nelse:\n    kind = datasets.CIFAR10\nx = kind('d')\nprint(x.train_data)\n",
    "if name == 'svhn':\n    x = datasets.SVHN('d')\nelse:\n    x = datasets.CIFAR10('d')\n    print(x.train_labels)\n",
    "class A:\n    def __init__(self):\n        self.x = datasets.CIFAR10('d')\n\n    def f(self):\n        def g():\n"
    "            return self.x.train_data\n\n        return g\n",
    "x = DataLoader(dataset=datasets.CIFAR10('d'), batch_size=4)\nprint(x.dataset.train_data)\n",
    "x = datasets.CIFAR10('d')\na, b = random_split(x, [1, 2])\nc = DataLoader(Subset(a, [0]))\n"
    "print(a.dataset.train_data, c.dataset.dataset.dataset.train_labels)\n",
    "x = {'a': datasets.CIFAR10('d'), 'b': datasets.CIFAR10('d')}\nprint(x['a'].train_data)\n",
    "x = {k: datasets.CIFAR10('d') for k in 'ab'}\ny = {k: DataLoader(x[k]) for k in 'ab'}\nprint(y['a'].dataset.train_data)\n",
    "class A(datasets.CIFAR10):\n    def __len__(self):\n"
    "        return len(self.train_data if self.train else self.test_data)\n",
    "class A(datasets.CIFAR10, object):\n    pass\n\n\nclass B(A):\n    def f(self):\n"
    "        self.train_data, self.more = self.train_data[:3], 3\n\n"
    "\nprint(B('d').train_data, [x for x in A('d').train_labels])\n",
    "class Mixin:\n    def g(self):\n        return 3\n\n\nclass A(Mixin, datasets.CIFAR10):\n    def f(self):\n"
    "        for i in range(3):\n            self.train_labels[i] = 0\n",
    "x = datasets.CIFAR10('d')\n\n\nclass A:\n    x = 3\n\n    def f(self):\n        return x.train_data\n\n\n"
    "def g():\n    x = 3\n    return x\n",
    "class A(datasets.CIFAR10):\n    def f(self):\n        self.train_labels += [3]\n",
    "x = datasets.CIFAR10('d')\n\n\ndef f(model):\n    return x.train_data, model.train_data\n\n\nclass Model:\n"
    "    def __init__(self):\n        self.y = 3\n",
]
OTHERS = [
    "def f(x):\n    return x.train_data\n",
    "x = 3\n\n\ndef f(x):\n    return x.train_data\n\n\nx = datasets.CIFAR10('d')\n",
    "x = datasets.CIFAR10('d')\nx = wrap(x)\nprint(x.train_data)\n",
    "for x in (datasets.CIFAR10('d'),):\n    print(x.train_data)\n",
    "class CIFAR10:\n    train_data = 3\n\n\nprint(CIFAR10().train_data)\n",
    "x = datasets.SVHN('d')\nprint(x.train_data)\n",
    "x = datasets.cifar10('d')\nprint(x.train_data)\n",
    "x = {'a': datasets.CIFAR10('d'), 'b': mine}\nprint(x['a'].train_data)\n",
    "x = {'a': datasets.CIFAR10('d')}\nx['b'] = mine\nprint(x['b'].train_data)\n",
    "x = {'a': datasets.CIFAR10('d')}\nx.update(b=mine)\nprint(x['b'].train_data)\n",
    "x = {**mine, 'a': datasets.CIFAR10('d')}\nprint(x['a'].train_data)\n",
    "class A:\n    def __init__(self):\n        self.x = datasets.CIFAR10('d')\n\n    def f(self, x):\n        self.x = x\n"
    "        return self.x.train_data\n",
    "class A(datasets.CIFAR10):\n    def __init__(self):\n        self.train_data = []\n        self.train_data.append(3)\n",
    "class A(datasets.CIFAR10):\n    @property\n    def train_data(self):\n        return 3\n\n\nprint(A('d').train_data)\n",
    "class A(datasets.CIFAR10):\n    def f(self):\n        if self.train:\n            print(self.train_data)\n        else:\n"
    "            self.train_data = 3\n",
    "class A(datasets.CIFAR10):\n    def f(self):\n        self.data = self.train_data / 255\n        return self.train_data\n",
    "class A(datasets.CIFAR10, Other):\n    def f(self):\n        return self.train_data\n",
    "class A(datasets.CIFAR10):\n    @staticmethod\n    def f(self):\n        return self.train_data\n",
    "class A(datasets.CIFAR10):\n    def f(self):\n        return self.train_data\n\n\nclass B(A):\n    def __init__(self):\n"
    "        self.train_data = []\n",
    "class Mixin:\n    def g(self):\n        self.train_data = self.train_data[:3]\n\n\nclass A(Mixin, datasets.CIFAR10):\n"
    "    def f(self):\n        return self.train_data\n",
    "class A(B):\n    def f(self):\n        return self.train_data\n\n\nclass B(A):\n    pass\n",
    "x = datasets.CIFAR10('d')\ny = x.train_data if hasattr(x, 'train_data') else x.data\n",
    "x = datasets.CIFAR10('d')\ntry:\n    y = x.targets\nexcept AttributeError:\n    y = x.train_labels\n",
    "x = datasets.CIFAR10('d')\ntry:\n    y = x.train_labels\nexcept:\n    y = x.targets\n",
    "x = datasets.CIFAR10('d')\n\n\ndef f(y):\n    y.train_labels = 3\n\n\nf(x)\nprint(x.train_labels)\n",
    "x = datasets.CIFAR10('d')\nx.targets = 3\nprint(x.train_labels)\n",
    "x = x if a else datasets.CIFAR10('d')\nprint(x.train_data)\n",
    "def f():\n    global x\n    x = mine\n\n\nx = datasets.CIFAR10('d')\nprint(x.train_data)\n",
    "x = datasets.wrap('d') if a else datasets.CIFAR10('d')\nprint(x.train_data)\n",
    "class A(datasets.CIFAR10):\n    def f(self):\n        if self.train:\n            print(self.train_data)\n"
    "        self.train_data = 3\n",
    "class A(datasets.CIFAR10):\n    def f(self):\n        for x in self.train_data:\n            pass\n"
    "        self.train_data = 3\n",
    "class A(datasets.CIFAR10):\n    pass\n\n\ndef f(A):\n    return A('d').train_data\n",
    "def f(x=None):\n    if x is None:\n        x = datasets.CIFAR10('d')\n    return x.train_data\n",
    "from mine import x\n\nif a:\n    x = datasets.CIFAR10('d')\nprint(x.train_data)\n",
    "args.x = datasets.CIFAR10('d')\nprint(args.x.train_data)\n",
    "*a, b = 3, datasets.CIFAR10('d'), 4\nprint(b.train_data)\n",
    "a, b = datasets.CIFAR10('d')\nprint(a.train_data)\n",
    "class A:\n    def f(self):\n        self.x = datasets.CIFAR10('d')\n        return self.x.train_data\n\n\nclass B(A):\n"
    "    def g(self, x):\n        self.x = x\n",
    "with datasets.CIFAR10('d') as x:\n    print(x.train_data)\n",
]


@pytest.mark.parametrize("source", SETS)
def test_sets_have_new_names(tmp_path, source):
    assert after(tmp_path, source) == today(source).replace("model.data", "model.train_data")


@pytest.mark.parametrize("source", OTHERS)
def test_what_may_be_something_else_is_left_alone(tmp_path, source):
    assert changes_of(tmp_path, a=source) == {}


def test_a_class_of_another_file(tmp_path):
    sets = (
        "class A(datasets.CIFAR10):\n    pass\n\n\nclass B(datasets.CIFAR10):\n    def f(self):\n        self.train_data = 3\n"
    )
    source = "from sets import A, B\n\nprint(A('d').train_data, B('d').train_data)\n"
    assert after(tmp_path, source, sets=sets) == "from sets import A, B\n\nprint(A('d').data, B('d').train_data)\n"


def test_what_another_file_gives_to_who_knows_what_is_left_alone(tmp_path):
    source = "x = datasets.CIFAR10('d')\nprint(x.train_labels, x.train_data)\n"
    assert after(tmp_path, source, b="def f(y):\n    y.train_labels = 3\n") == (
        "x = datasets.CIFAR10('d')\nprint(x.train_labels, x.data)\n"
    )


@pytest.mark.parametrize("more", ["def f(y):\n    return y.train_labels\n", "print(f'{x.train_labels}')\n"])
def test_a_name_that_is_set_and_read_where_nobody_knows_is_only_remarked(tmp_path, more):
    source = f"x = datasets.CIFAR10('d')\nx.train_labels = 3\n{more}"
    change = changes_of(tmp_path, a=source)["a.py"]
    assert not change.changed
    assert [item.fix for item in change.findings] == ["manual"]


def test_what_a_class_has_of_its_own_does_not_keep_the_set_from_changing(tmp_path):
    own = "\n\nclass Model:\n    def f(self):\n        self.train_labels = 3\n        return self.train_labels\n"
    source = "x = datasets.CIFAR10('d')\nx.train_labels = x.train_labels[:3]\n"
    assert after(tmp_path, source + own) == today(source) + own


def test_a_class_of_the_same_name_as_torchvisions(tmp_path):
    source = "class CIFAR10(datasets.CIFAR10):\n    def f(self):\n        return self.train_data\n"
    other = "class A(datasets.CIFAR10):\n    def f(self):\n        self.train_data = 3\n"
    assert after(tmp_path, source, b=other) == today(source)
    assert after(tmp_path, source, b=f"from a import CIFAR10\n\n\n{other.replace('datasets.', '')}") == source


def test_what_is_followed_endlessly_is_given_up(tmp_path):
    steps = "".join(f"x{step + 1} = x{step} if a else x{step}\n" for step in range(50))
    assert changes_of(tmp_path, a=f"x0 = datasets.CIFAR10('d')\n{steps}print(x50.train_data)\n") == {}


def test_cifar_is_an_error_and_mnist_a_warning(tmp_path):
    change = changes_of(tmp_path, a="print(datasets.CIFAR10('d').train_data, datasets.KMNIST('d').test_data)\n")["a.py"]
    assert [(item.severity, item.message) for item in change.findings] == [
        ("error", "CIFAR10 has no train_data since torchvision 0.3; write data"),
        ("warning", "KMNIST warns of test_data since torchvision 0.3; write data"),
    ]


def test_a_folder_of_that_name_is_no_library(tmp_path):
    (tmp_path / "torchvision").mkdir()
    (tmp_path / "torchvision" / "datasets.py").write_text("class CIFAR10:\n    pass\n")
    assert changes_of(tmp_path, a="print(datasets.CIFAR10('d').train_data)\n") == {}


def test_torchvision_has_the_new_names_alone(tmp_path, monkeypatch):
    datasets = pytest.importorskip("torchvision.datasets")
    numpy = pytest.importorskip("numpy")
    batches = tmp_path / "data" / datasets.CIFAR10.base_folder
    batches.mkdir(parents=True)
    for name, _ in [*datasets.CIFAR10.train_list, *datasets.CIFAR10.test_list]:
        images = numpy.zeros((2, 3072), "uint8")
        (batches / name).write_bytes(pickle.dumps({"data": images, "labels": [1, 2]}))
    (batches / "batches.meta").write_bytes(pickle.dumps({"label_names": ["a", "b", "c"]}))
    monkeypatch.setattr(datasets.cifar, "check_integrity", lambda *_: True)
    source = (
        "class Noisy(datasets.CIFAR10):\n    def __init__(self, root, train):\n        super().__init__(root, train)\n"
        "        if train:\n            self.train_labels = [label + 1 for label in self.train_labels]\n\n"
        "    def all(self):\n        if self.train:\n            return self.train_data, self.train_labels\n"
        "        return self.test_data, self.test_labels\n"
        f"\n\nnoisy = Noisy({str(tmp_path / 'data')!r}, True)\ntest = Noisy({str(tmp_path / 'data')!r}, False)\n"
    )
    with pytest.raises(AttributeError, match="train_labels"):
        exec(HEAD + source, {"__name__": "a"})
    held = {"__name__": "a"}
    exec(HEAD + after(tmp_path, source), held)
    assert [(images.shape, images.dtype, labels) for images, labels in (held["noisy"].all(), held["test"].all())] == [
        ((10, 32, 32, 3), "uint8", [2, 3] * 5),
        ((2, 32, 32, 3), "uint8", [1, 2]),
    ]
    assert not [name for name in OLD if hasattr(held["noisy"], name)]
    for kind in ("EMNIST", "FashionMNIST", "KMNIST", "MNIST", "QMNIST"):
        assert all(isinstance(getattr(getattr(datasets, kind), name), property) for name in OLD)
