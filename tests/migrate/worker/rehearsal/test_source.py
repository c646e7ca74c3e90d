def test_a_loop_over_epochs_ends_after_the_first_and_no_other_loop_does(on_stage):
    world = on_stage()
    text = """
seen = []
num_epochs, args = 3, type("Args", (), {"epochs": 4, "start_epoch": 2})
for epoch in range(num_epochs):
    seen.append(("epoch", epoch))
for _ in range(args.start_epoch, args.epochs):
    seen.append(("_", _))
for i in range(3):
    seen.append(("i", i))
else:
    line = __import__("sys")._getframe().f_lineno
"""
    names = world.play(text)
    assert names["seen"] == [("epoch", 0), ("_", 2), ("i", 0), ("i", 1), ("i", 2)]
    assert names["line"] == 11
    assert [(item.what, item.where) for item in world.stage.standins] == [
        ("a loop over epochs ended after 1", "main.py:4"),
        ("a loop over epochs ended after 1", "main.py:6"),
    ]


def test_one_epoch_is_not_cut(on_stage):
    world = on_stage()
    assert world.play("seen = []\nfor epoch in range(1):\n    seen.append(epoch)\nelse:\n    seen.append('end')\n")["seen"] == [
        0,
        "end",
    ]
    assert world.said("time") == []


def test_time_as_it_is_leaves_the_source_alone(on_stage):
    assert len(on_stage(standins=()).play("seen = []\nfor epoch in range(3):\n    seen.append(epoch)\n")["seen"]) == 3
