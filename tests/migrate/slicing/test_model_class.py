"""What a class has of its bases, and which classes make themselves."""

import ast

import pytest

from headrace.migrate.slicing.model_class import ModelClass, makes_itself

SOURCE = """
class Base:
    def forward(self, x):
        return self.head(x)
    def reset(self):
        pass

class Middle(Base):
    def forward(self, x):
        return x

class Net(Middle):
    pass
"""


def classes(source=SOURCE):
    """Model classes by their names; each with the one before it for a base."""
    found: dict[str, ModelClass] = {}
    for node in ast.parse(source).body:
        found[node.name] = ModelClass(None, node, [*found.values()][-1:])
    return found


def test_a_method_is_that_of_the_nearest_class_that_has_it():
    base, middle, net = classes().values()
    assert net.methods("forward") is middle.node.body[0]
    assert net.methods("reset") is base.node.body[1]
    assert net.methods("build") is None
    assert {node.id for node in net.own_nodes() if isinstance(node, ast.Name)} >= {"Middle", "Base", "x"}


def test_classes_that_are_each_others_bases_end():
    base, middle, net = classes().values()
    base.bases = [net]
    assert net.methods("build") is None
    assert net.methods("forward") is middle.node.body[0]
    assert sum(node is base.node for node in net.own_nodes()) == 7  # of 21 steps up, every third


@pytest.mark.parametrize(
    ("mark", "body", "makes"),
    [
        ("@classmethod", "return cls(3)", True),
        ("@classmethod", "net = Net(3)\n        return net", True),
        ("@classmethod", "return Other(3)", False),
        ("@staticmethod", "return Net(3)", False),
        ("@other.classmethod", "return cls.build(3)", True),
    ],
)
def test_a_class_makes_itself_by_a_class_method_that_calls_it(mark, body, makes):
    (node,) = ast.parse(f"class Net:\n    {mark}\n    def create(cls, n):\n        {body}\n").body
    assert makes_itself(node, "create") is makes
    assert not makes_itself(node, "build")


def test_a_method_that_takes_nothing_makes_nothing():
    (node,) = ast.parse("class Net:\n    @classmethod\n    def create():\n        return Net()\n").body
    assert not makes_itself(node, "create")
