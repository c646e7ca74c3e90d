"""Fire's command lines: with what a function requires, and of several functions the one that uses a model."""

import pytest

pytest.importorskip("fire")

FUNCTION = "import fire\ndef demo(data, epochs: int, *, share: float, depth=4):\n    print(data, epochs, share, depth)\n"
SEVERAL = (
    "import fire\nfrom pathlib import Path\ndef train(data):\n    print('train', data)\n"
    "def evaluate(checkpoint, size=3):\n    print('evaluate', checkpoint, size)\ndef _helper(x):\n    pass\n"
)
CLASS = (
    "import fire\nclass Runner:\n    def __init__(self, model_path):\n        self.path = model_path\n"
    "    def test(self, image):\n        print(self.path, image)\n    def about(self):\n        print('about')\n"
)


@pytest.mark.parametrize(
    ("text", "argv", "printed"),
    [
        (f"{FUNCTION}fire.Fire(demo)\n", [], "data 1 0.1 4"),
        (f"{FUNCTION}fire.Fire(demo)\n", ["here", "--depth", "7"], "here 1 0.1 7"),
        (f"{FUNCTION}fire.Fire(demo)\n", ["--epochs=3", "--share", "0.5", "there"], "there 3 0.5 4"),
        (f"{SEVERAL}fire.Fire()\n", [], "evaluate checkpoint.pth 3"),
        (f"{SEVERAL}fire.Fire()\n", ["train"], "train data"),
        (f"{SEVERAL}fire.Fire({{'fit': train, 'about': _helper}})\n", [], "train data"),
        (f"{CLASS}fire.Fire(Runner)\n", [], "checkpoint.pth image.jpg"),
        (f"{CLASS}fire.Fire(Runner)\n", ["--model-path=net.pth", "test", "a.png"], "net.pth a.png"),
        (f"{CLASS}fire.Fire(Runner('own.pth'))\n", [], "own.pth image.jpg"),
    ],
)
def test_what_a_command_requires_is_given(rehearsed, text, argv, printed):
    done = rehearsed({"main.py": text}, *argv)
    assert (done.report.ended, done.stdout.strip()) == ("finished", printed), done.stderr


def test_what_is_complete_is_left_and_what_was_added_is_told(rehearsed):
    text = f"{FUNCTION}fire.Fire(demo)\n"
    done = rehearsed({"main.py": text}, "here", "2", "--share=1")
    assert (done.stdout, [item.what for item in done.report.standins]) == ("here 2 1 4\n", [])
    done = rehearsed({"main.py": text}, "here", "2")
    assert [item.what for item in done.report.standins] == ["--share=0.1 was guessed"]
