import json

import pytest

from headrace.migrate.worker.rehearsal import Enough
from headrace.migrate.worker.rehearsal.edges import screens


def test_questions_are_answered(on_stage):
    asked = (
        "Continue? [y/n] ",
        "Path of the image: ",
        "Path of the model's weights (.pth): ",
    )
    names = on_stage(screens).play(f"found = [input(question) for question in {asked}]\n")
    assert names["found"] == ["y", "image.jpg", "checkpoint.pth"]


def test_what_says_nothing_is_answered_with_a_number(on_stage):
    assert on_stage(screens).play("found = input('Which? '), input('Which folder? ')\n")["found"] == ("1", "data")


def test_a_conversation_ends(on_stage):
    with pytest.raises(Enough):
        on_stage(screens).play("while True:\n    input('Image: ')\n")


def test_windows_and_plots_show_nothing(on_stage):
    world = on_stage(screens)
    world.play(
        "import cv2, matplotlib\nmatplotlib.use('Agg')\nimport matplotlib.pyplot as plt\nimport numpy as np\n"
        "from PIL import Image\n"
        "plt.plot([1]); plt.show()\ncv2.imshow('x', np.zeros((2, 2))); cv2.waitKey(0); cv2.destroyAllWindows()\n"
        "Image.new('RGB', (2, 2)).show()\n"
    )
    shown = [item.partition("(")[0] for item in world.said("screens")]
    assert shown == ["show", "imshow", "destroyAllWindows", "show"]


def test_windows_of_matplotlib_are_done_without(on_stage, monkeypatch):
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "MPLBACKEND"):
        monkeypatch.delenv(name, raising=False)
    world = on_stage(screens)
    names = world.play(
        "import matplotlib\nmatplotlib.use('Agg')\nimport matplotlib.pyplot as plt\n"
        "matplotlib.use('TkAgg')\nplt.switch_backend('TkAgg')\nfound = matplotlib.get_backend()\nplt.plot([1]); plt.show()\n"
    )
    assert names["found"].lower() == "agg"
    assert set(world.said("screens")) == {"matplotlib draws nowhere: TkAgg needs a screen", "show() showed nothing"}


def test_a_curve_over_epochs_that_were_not_run_is_cut(on_stage):
    world = on_stage(screens)
    names = world.play(
        "import matplotlib\nmatplotlib.use('Agg')\nimport matplotlib.pyplot as plt\n"
        "line, = plt.plot(range(20), [0.5, 0.4], 'r-', label='loss')\nbars = len(plt.bar(range(3), [1.0, 2.0], 0.5))\n"
        "found = line.get_xydata().tolist()\n"
    )
    assert (names["found"], names["bars"]) == ([[0.0, 0.5], [1.0, 0.4]], 2)
    assert set(world.said("screens")) == {"a curve was cut where its data ended"}
    with pytest.raises(ValueError, match="kwargs|property|format|color|not a valid"):
        world.play("import matplotlib.pyplot as plt\nplt.plot([1, 2], [1, 2], color='no such color')\n")


def test_a_camera_has_a_few_frames(on_stage):
    world = on_stage(screens)
    names = world.play(
        "import cv2\ncamera, frames = cv2.VideoCapture(0), []\nwhile camera.isOpened():\n    good, frame = camera.read()\n"
        "    if not good:\n        break\n    frames.append(frame.shape)\ncamera.release()\n"
    )
    assert names["frames"] == [(480, 640, 3)] * 2
    assert world.said("data") == ["the frames of cv2.VideoCapture(0)"]


def test_a_terminal_has_a_size(on_stage):
    names = on_stage(screens).play("import os\nsize = os.get_terminal_size(99)\n")
    assert tuple(names["size"]) == (80, 24)


def test_bars_of_a_notebook_are_lines_where_there_are_no_widgets(on_stage):
    notebook = pytest.importorskip("tqdm.notebook")
    if notebook.IProgress is not None:
        pytest.skip("ipywidgets is installed")
    world = on_stage(screens)
    names = world.play(
        "from tqdm.notebook import tqdm, tnrange, trange\nseen = [*tqdm(range(3), leave=False), *trange(2), *tnrange(1)]\n"
    )
    assert names["seen"] == [0, 1, 2, 0, 1, 0]
    assert len(world.said("screens")) == 1


def test_a_detector_that_finds_nothing_or_is_not_there_is_given_the_whole_image(rehearsed):
    pytest.importorskip("cv2")
    text = (
        "import cv2\nimport numpy as np\n"
        "faces = cv2.CascadeClassifier(cv2.data.haarcascades + 'haarcascade_frontalface_default.xml')\n"
        "found = faces.detectMultiScale(np.zeros((30, 40), np.uint8), scaleFactor=1.1, minNeighbors=4)\n"
        "print([tuple(map(int, box)) for box in found], faces.empty())\n"
        "print([len(part) for part in faces.detectMultiScale3(np.zeros((30, 40), np.uint8), outputRejectLevels=True)])\n"
    )
    done = rehearsed({"main.py": text})
    assert (done.report.ended, done.stdout) == ("finished", "[(0, 0, 40, 30)] False\n[1, 1, 1]\n"), done.report.why


def test_the_cells_of_a_notebook_have_the_shell(rehearsed):
    text = "get_ipython().events.register('pre_run_cell', print)\nprint('google.colab' in str(get_ipython()))\n"
    cells = [{"cell_type": "code", "source": text, "metadata": {}, "outputs": [], "execution_count": None}]
    notebook = json.dumps({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5})
    done = rehearsed({"main.ipynb": notebook}, script="main.ipynb")
    assert (done.report.ended, done.stdout) == ("finished", "False\n"), done.stderr


def test_so_has_a_notebook_that_became_a_script_and_its_timed_cells_run(rehearsed):
    text = (
        "# In[1]:\nget_ipython().run_line_magic('matplotlib', 'inline')\nget_ipython().system('pip install x')\n"
        "get_ipython().run_cell_magic('time', '', 'x = 3\\n')\nget_ipython().run_cell_magic('bash', '', 'exit 3')\nprint(x)\n"
    )
    done = rehearsed({"main.py": text})
    assert (done.report.ended, done.stdout) == ("finished", "3\n"), done.report.why
    assert "where ipython runs it" in done.standins("screens")[0].what


def test_a_script_that_asks_whether_it_is_a_notebook_is_none(rehearsed):
    text = "try:\n    get_ipython()\n    print('notebook')\nexcept NameError:\n    print('script')\n"
    assert rehearsed({"main.py": text}).stdout == "script\n"
