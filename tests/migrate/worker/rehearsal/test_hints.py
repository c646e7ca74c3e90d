import ast
import json

import pytest

from headrace.migrate.worker.rehearsal import hints


@pytest.fixture
def says(tmp_path):
    def write(**files):
        for name, text in files.items():
            (tmp_path / f"{name}.py").write_text(text)
        return str(tmp_path), "main.py"

    return write


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("num_classes = 7", 7),
        ("parser.add_argument('--num-classes', type=int, default=12)", 12),
        ("def build(depth, nb_classes=5):\n    pass", 5),
        ("model = Net(n_classes=3)", 3),
        ("CLASSES = ('cat', 'dog')", 2),
        ("class Config:\n    NUM_CLASSES: int = 120", 120),
        ("labels = {0: 'cat', 1: 'dog', 2: 'bird'}", 3),
        ("num_classes = 'many'\nepochs = 10", None),
        ("num_workers = 7", None),
    ],
)
def test_the_count_of_classes_is_read(says, text, count):
    assert hints.class_count(*says(main=text)) == count


def test_the_scripts_own_word_counts_first(says):
    assert hints.class_count(*says(a="num_classes = 3", main="num_classes = 7")) == 7


def test_names_anywhere_count_before_the_numbers_of_others(says):
    assert hints.class_count(*says(a="num_classes = 3", b="CLASSES = ['cat', 'dog']", main="batch = 4")) == 2


def test_the_sources_of_a_large_repository_are_read_once(says, monkeypatch):
    files = {f"m{number}": "a = b = c = 1\n" * 20 for number in range(40)}
    root, script = says(main="print()", **files)
    walked = []
    walk = hints.ast.walk
    monkeypatch.setattr(hints.ast, "walk", lambda tree: walked.append(1) or walk(tree))
    assert (hints.class_count(root, script), hints.class_names(root, script), hints.image_ending(root, script)) == (
        (None, None, ".jpg")
    )
    assert len(walked) == 41


def test_names_are_all_different_strings(says):
    assert hints.class_names(*says(main="classes = ['cat', 'dog']")) == ("cat", "dog")


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("label_map = {'dogs': 1, 'cats': 0}", ("cats", "dogs")),
        ("class_to_idx = {'tench': 0, 'goldfish': 1}", ("tench", "goldfish")),
        ("weights = {'cats': 0, 'dogs': 1}", None),
        ("label_map = {'cats': 1, 'dogs': 2}", None),
        ("label_map = {'cats': 0, **more}", None),
        ("label_map = {'cats': False, 'dogs': True}", None),
    ],
)
def test_names_are_the_keys_of_a_table_that_numbers_them(says, text, names):
    assert hints.class_names(*says(main=text)) == names


def test_a_notebook_that_is_run_says_its_classes_before_the_files(tmp_path):
    (tmp_path / "other.py").write_text("classes = ['a', 'b', 'c']\n")
    cells = [{"cell_type": "code", "source": "%matplotlib inline\nlabel_map = {'cats': 0, 'dogs': 1}", "metadata": {}}]
    (tmp_path / "main.ipynb").write_text(json.dumps({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 4}))
    assert hints.class_names(str(tmp_path), "main.ipynb") == ("cats", "dogs")
    assert hints.class_count(str(tmp_path), "main.ipynb") == 2


def test_a_list_with_anything_else_in_it_is_no_list_of_names(says):
    assert hints.class_names(*says(main="classes = ['cat', name]\nlabels = ['a', 'a']")) is None


@pytest.mark.parametrize(
    "text",
    [
        "NEEDED = {'path', 'kind'}\nmissing = NEEDED.difference(df.columns)",
        "NEEDED = frozenset(['path', 'kind'])\nmissing = NEEDED - set(table.columns)",
        "NEEDED = ('path', 'kind')\nmissing = [name for name in NEEDED if name not in table.columns]",
        "if not {'path', 'kind'} <= set(df.columns): raise ValueError",
        "def check(df, needed=('path', 'kind')):\n    for name in needed:\n        assert name in df.columns",
        "class Data:\n    NEEDED = ['path', 'kind']\nassert all(name in df.columns for name in NEEDED)",
        "if 'path' not in df.columns or 'kind' not in list(df.columns):\n    raise ValueError",
        "if 'path' not in df.columns:\n    raise ValueError\n"
        "if 'kind' not in df.columns and 'level' not in df.columns:\n    raise ValueError",
        "if 'path' in df.columns:\n    x = 1\nelif 'file' in df.columns:\n    x = 2\nelse:\n    raise ValueError\n"
        "if 'kind' not in self.df.columns:\n    raise KeyError\nif 'fold' in df.columns:\n    df = df[:3]",
    ],
)
def test_columns_that_a_table_must_have_are_among_them(says, text):
    found, _ = hints.columns(*says(main=f"df = pd.read_csv(path)\nprint(df['image'])\n{text}"))
    assert found[0] == "image"
    assert set(found) == {"image", "path", "kind"}


def test_names_beside_a_table_are_no_columns(says):
    text = "NAMES = ['cat', 'dog']\ndf = pd.read_csv(path)\ndraw(df.columns, NAMES)\nother = {'x'} - set(rows)"
    assert hints.columns(*says(main=text)) == ([], 0)


def test_columns_are_those_that_readers_of_tables_take(says):
    text = "df = pd.read_csv(p)\nx = df['image'], df.loc[i, 'label'], df[['a', 'b']], df.iloc[i, 5]\n"
    text += "os.environ['HOME']; ckpt['model']\n"
    assert hints.columns(*says(main=text, other="state['x']; y['z']")) == (["image", "label", "a", "b"], 6)


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("for n, (_, rows) in enumerate(parts):\n    df.loc[rows, 'fold'] = n\ntrain = df[df['fold'] != 0]\n", False),
        ("df['fold'] = 0\nprint(df['fold'])\n", False),
        ("df['fold'] = df['fold'].astype(int)\n", True),
        ("df['fold'] = (\n    df['kind']\n    + df['fold']\n)\n", True),
        ("df['fold'] += 1\nprint(df['fold'])\n", True),
        ("print(df['fold'])\ndf['fold'] = 0\n", True),
    ],
)
def test_a_column_that_is_written_before_it_is_read_is_none_of_the_table(says, text, read):
    found, _ = hints.columns(*says(main=f"df = pd.read_csv(path)\nprint(df['image'])\n{text}"))
    assert ("fold" in found, "image" in found) == (read, True)


def test_names_that_a_table_of_the_repository_maps(tmp_path):
    (tmp_path / "package.json").write_text('{"name": "x", "version": 1}')
    (tmp_path / "data").mkdir()
    (tmp_path / "data/cat_to_name.json").write_text('{"21": "fire lily", "3": "canterbury bells", "45": "bolero deep blue"}')
    (tmp_path / "broken.json").write_text("{")
    assert hints.mapped_names(str(tmp_path), 3) == ("21", "3", "45")
    assert hints.mapped_names(str(tmp_path), 4) is None


def test_what_the_sources_bind_to_a_name(says):
    said = says(main="arch = pick()\n", other="arch = ''\nnet = build(arch='small')\n")
    assert (hints.stated(*said, "arch"), hints.stated(*said, "depth")) == ("small", None)


@pytest.mark.parametrize(
    ("files", "names"),
    [
        ({"main": "import data\n", "data": "x = 1\n"}, None),
        ({"main": "from tools.data import x\n", "data": "from .draw import y\n"}, ("small", "full")),
        ({"main": "import data\n", "other": "class_names = ['ant', 'bee']\n"}, ("ant", "bee")),
    ],
)
def test_labels_of_a_diagram_are_none_of_the_classes(says, files, names):
    assert hints.class_names(*says(**files, draw="labels = ['small', 'full']\n")) == names


@pytest.mark.parametrize(
    ("line", "count"),
    [
        ("x.reshape(-1, 28, 28, 1)", 784),
        ("x.reshape((48, 48))", 2304),
        ("x.view(-1, 3, 32, 32)", 3072),
        ("x.reshape(-1, 10)", None),
        ("x.reshape(n, size, size)", None),
    ],
)
def test_how_many_pixels_a_table_has_for_an_image(tmp_path, line, count):
    (tmp_path / "main.py").write_text(f"import pandas as pd\nx = pd.read_csv('a.csv')\n{line}\n")
    assert hints.pixel_count(str(tmp_path), "main.py") == count


@pytest.mark.parametrize(
    ("line", "sign"),
    [
        ("np.fromstring(row['pixels'], dtype=int, sep=' ')", " "),
        ("np.fromstring(value, sep=',', dtype=np.float32)", ","),
        ("row['image_vector'].split(';')", ";"),
        ("pixels.split()", " "),
        ("name.split(',')", " "),  # is no image
    ],
)
def test_what_stands_between_the_numbers_of_an_image(tmp_path, line, sign):
    (tmp_path / "main.py").write_text(f"import pandas as pd\nx = pd.read_csv('a.csv')\n{line}\n")
    assert hints.sign_between_numbers(str(tmp_path), "main.py") == sign


def test_pixels_of_what_is_no_table_are_none(tmp_path):
    (tmp_path / "main.py").write_text("x.reshape(-1, 28, 28)\n")
    assert hints.pixel_count(str(tmp_path), "main.py") is None


@pytest.mark.parametrize(
    ("line", "does"),
    [("p = f'{name}.png'", True), ("p = name + '.jpg'", True), ("key = path.stem", True), ("p = 'a/b.png'", False)],
)
def test_whether_the_sources_put_endings_to_names(tmp_path, line, does):
    (tmp_path / "main.py").write_text(f"{line}\n")
    assert hints.adds_endings(str(tmp_path), "main.py") is does


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("index = label_to_index[name]", True),
        ("class_to_idx = {}", True),
        ("self.cat2id.get(name)", True),
        ("label = CLASS_NAMES.index(name)", True),
        ("place = text.index(name)", False),
        ("index_to_label[3]", False),
        ("label = index", False),
    ],
)
def test_whether_classes_are_looked_up_by_name(says, text, numbers):
    assert hints.numbers_names(*says(main=text)) is numbers


@pytest.mark.parametrize(
    ("text", "name", "looped"),
    [
        ("def f(rows):\n    for row in rows:\n        out = row\n    return out", "out", True),
        ("def f(rows):\n    for out in rows:\n        pass\n    return out", "out", True),
        ("def f(rows):\n    out = 1\n    for row in rows:\n        out = row\n    return out", "out", False),
        ("def f(rows):\n    if rows:\n        out = rows\n    return out", "out", False),
        (
            "import abc\nout = 1\n@abc.abstractmethod\ndef f(rows):\n    for row in rows:\n        out = row\n    return out",
            "out",
            True,
        ),
        ("def f(rows):\n    return len(rows)", "out", False),
    ],
)
def test_a_name_that_only_loops_give_a_value_is_told(says, text, name, looped):
    root, script = says(main=text)
    names = {}
    exec(compile(text, f"{root}/{script}", "exec"), names)
    assert hints.bound_within(names["f"].__code__, name, ast.For) is looped


def test_a_name_of_the_script_itself_is_told_too(says):
    root, script = says(main="for row in []:\n    out = row\nprint(out)\n")
    code = compile("for row in []:\n    out = row\nprint(out)\n", f"{root}/{script}", "exec")
    assert hints.bound_within(code, "out", ast.For)
    assert not hints.bound_within(code, "out", ast.If)
    assert not hints.bound_within(code.replace(co_filename=f"{root}/other.py"), "out", ast.For)


@pytest.mark.parametrize(("text", "ending"), [("name.endswith('.ppm')", ".ppm"), ("name.endswith(('.ppm', '.jpg'))", ".jpg")])
def test_images_end_as_the_sources_tell_them(says, text, ending):
    assert hints.image_ending(*says(main=f"found = [name for name in names if {text}]")) == ending


@pytest.mark.parametrize(
    ("text", "keyed"),
    [
        ("batch = load(open('a/data_batch_1.pkl', 'rb'))\nx = batch[b'data']", True),
        ("batch = load(open('data_batch_1.pkl', 'rb'))\nx = batch['data']", True),
        ("images = load(open('data_batch_1.pkl', 'rb'))\nx = images[0]", False),
        ("images = load(open('other.pkl', 'rb'))\nx = images['data']", False),
    ],
)
def test_what_is_read_from_a_file_is_asked_for_by_keys(says, text, keyed):
    assert hints.is_keyed(*says(main=text), "made/data_batch_1.pkl") is keyed


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.yaml", "model:\n  num_classes: 8  # kinds\n"),
        ("a.json", '{\n  "epochs": 3,\n  "num_classes": 8,\n  "x": 1\n}\n'),
        ("a.toml", "[model]\nnum_classes = 8\n"),
    ],
)
def test_a_configuration_that_the_command_line_names_says_how_many_classes_there_are(tmp_path, name, text):
    (tmp_path / name).write_text(text)
    (tmp_path / "other.yaml").write_text("num_classes: 5\n")
    assert hints.configured_count(str(tmp_path), ("fit", "-c", name)) == 8
    assert hints.configured_count(str(tmp_path), (f"--config={name}",)) == 8
    assert hints.configured_count(str(tmp_path), ("--epochs", "3", "missing.yaml")) is None


@pytest.mark.parametrize(
    ("text", "sign"),
    [
        ("rows = csv.reader(file, delimiter=';')", ";"),
        ("table = np.genfromtxt(path, delimiter='|', dtype=str)\nother = csv.writer(file, delimiter=';')", "|"),
        ("rows = csv.reader(file)", None),
        ("a = csv.reader(file, delimiter=';')\nb = np.loadtxt(path, delimiter=',')", None),
        ("rows = csv.reader(file, delimiter=sign)", None),
    ],
)
def test_the_sign_between_a_tables_cells(says, text, sign):
    assert hints.sign_between_cells(*says(main=text)) == sign
