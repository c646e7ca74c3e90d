import copy
import pickle

import pytest

from headrace.migrate.worker.rehearsal.edges.libraries.attribute_dicts import (
    LIBRARIES,
    AttributeDict,
    GrowingDict,
    contents,
)


@pytest.mark.parametrize("kind", [AttributeDict, GrowingDict])
def test_items_are_attributes_at_any_depth(kind):
    config = kind({"net": {"name": "resnet", "sizes": [{"width": 3}], "pair": ({"of": 1}, 2)}}, seed=1)
    assert (config.net.name, config.net.sizes[0].width, config.net.pair[0].of, config.seed) == ("resnet", 3, 1, 1)
    config.net.name, config["more"] = "vgg", {"deep": {"er": 1}}
    config.setdefault("last", {"x": 1})
    config.update({"a": {"b": 1}}, c={"d": 2})
    assert (config["net"]["name"], config.more.deep.er, config.last.x, config.a.b, config.c.d) == ("vgg", 1, 1, 1, 2)
    del config.more
    assert "more" not in config
    plain = config.to_dict()
    assert {type(plain), type(plain["net"]), type(plain["net"]["sizes"][0])} == {dict}
    other = copy.deepcopy(config)
    other.net.name = "alexnet"
    assert config.net.name == "vgg"
    assert type(config.copy()) is kind
    assert pickle.loads(pickle.dumps(config)) == config
    assert kind(None) == kind() == {}


def test_what_is_not_there():
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = AttributeDict().nothing
    with pytest.raises(KeyError):
        AttributeDict()["nothing"]
    assert not hasattr(AttributeDict(), "nothing")
    grown = GrowingDict()
    grown.a.b.c = 1
    assert grown == {"a": {"b": {"c": 1}}}
    assert grown.other == {}
    for kind in (AttributeDict, GrowingDict):
        assert not hasattr(kind(), "__array__")
        with pytest.raises(AttributeError):
            del kind().nothing


@pytest.mark.parametrize("library", sorted(LIBRARIES))
def test_a_script_uses_them_as_the_library_s(rehearsed, library):
    name = next(iter(contents(library)))
    text = (
        f"from {library} import {name}\nc = {name}({{'a': {{'b': [1, 2]}}}})\nc.lr = 0.5\n"
        f"print(c.a.b[1], c['lr'], {name}.__name__)\n"
    )
    done = rehearsed({"main.py": text})
    assert (done.report.ended, done.stdout) == ("finished", f"2 0.5 {name}\n"), done.report.why


def test_munch_s_functions():
    munch = contents("munch")
    made = munch["munchify"]([{"a": {"b": 1}}])
    assert (made[0].a.b, type(made[0]).__name__) == (1, "Munch")
    assert type(munch["unmunchify"](made)[0]) is dict


def test_one_of_ml_collections_may_be_locked():
    library = contents("ml_collections")
    config = library["ConfigDict"]({"net": {"width": 3}}).lock()
    with config.unlocked() as open_one:
        open_one.net.depth = library["config_dict"].placeholder(int)
    assert dict(**config.unlock().net) == {"width": 3, "depth": None}
    assert type(config.net) is library["config_dict"].ConfigDict
