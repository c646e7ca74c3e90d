"""What is made for scripts that read tables with pandas."""

import json

import pytest


def test_rows_that_a_table_is_searched_for_are_in_the_next_one(rehearsed):
    pytest.importorskip("pandas")
    text = (
        "import pandas as pd\ntable = pd.read_csv('splits.csv')\n"
        "kept = [table[table['fold'].isin(['a', 'b'])], table[table['fold'] == 'c'], table[table['part'] == 3]]\n"
        "assert all(len(rows) for rows in kept), 'num_samples=0'\nprint([len(set(rows['label'])) for rows in kept])\n"
    )
    done = rehearsed({"main.py": text})
    assert done.report.ended == "finished", done.report.why
    assert done.stdout == "[10, 10, 10]\n"


@pytest.mark.parametrize("header", [", header=None", ""])
def test_a_table_has_the_columns_that_it_is_given_afterwards(rehearsed, header):
    pytest.importorskip("pandas")
    text = (
        "import pandas as pd\nfrom PIL import Image\n"
        f"table = pd.read_csv('train.csv'{header})\ntable.columns = ['img', 'label', 'mask']\n"
        "print(len({row.label for row in table.itertuples()}), {Image.open(name).mode for name in [*table.img]})\n"
    )
    other = (
        "import pandas as pd\ntable = pd.read_csv('all.csv')\nprint(table['id'], table['age'], table['sex'], table['width'])\n"
    )
    done = rehearsed({"main.py": text, "describe.py": other})
    assert (done.report.ended, done.stdout) == ("finished", "10 {'RGB'}\n"), done.report.why


@pytest.mark.parametrize(
    ("read", "row"),
    [
        ("pd.read_csv('a.csv', delimiter='\\t')", "['image_0000.jpg', 0]"),
        ("pd.read_csv('a.csv', sep=';', encoding='cp1252')", "['image_0000.jpg', 0]"),
        ("pd.read_table('a.txt')", "['image_0000.jpg', 0]"),
        ("pd.read_csv('a.txt', sep=' ', names=['IMAGE', 'LABEL'])", "['image_0000.jpg', 0]"),
        ("pd.read_csv('a.txt', sep=r'\\s+', names=['IMAGE', 'LABEL'], engine='python')", "['image_0000.jpg', 0]"),
    ],
)
def test_a_table_is_written_as_it_is_read(rehearsed, read, row):
    pytest.importorskip("pandas")
    text = f"import pandas as pd\ntable = {read}\nprint([table['IMAGE'][0], int(table['LABEL'][0])], len(table.columns))\n"
    done = rehearsed({"main.py": text})
    assert (done.report.ended, done.stdout) == ("finished", f"{row} 2\n"), done.report.why


def test_names_of_classes_for_which_a_table_is_searched_are_in_the_next_one(rehearsed):
    pytest.importorskip("pandas")
    text = (
        "import os\nimport pandas as pd\nCLASSES = ['ant', 'bee']\nos.listdir('photos/train')\n"
        "table = pd.read_csv('labels.csv')\nkept = table[table['name'].isin(CLASSES)]\n"
        "assert len(kept), 'num_samples=0'\nprint(sorted(set(kept['name'])))\n"
    )
    done = rehearsed({"main.py": text})
    assert (done.report.ended, done.stdout) == ("finished", "['ant', 'bee']\n"), done.report.why


def test_names_for_which_a_table_has_others_in_their_place_are_in_the_next_one(rehearsed):
    pytest.importorskip("pandas")
    text = (
        "import pandas as pd\ntable = pd.read_csv('labels.csv')\n"
        "table['kind'] = table['dx'].map({'nv': 'mole', 'mel': 'melanoma'})\ntable = table.dropna(subset=['kind'])\n"
        "assert len(table), 'num_samples=0'\nprint(sorted(set(table['kind'])))\n"
    )
    done = rehearsed({"main.py": text})
    assert (done.report.ended, done.stdout) == ("finished", "['melanoma', 'mole']\n"), done.report.why


def test_columns_that_are_asked_for_together_are_in_the_next_table(rehearsed):
    pytest.importorskip("pandas")
    text = (
        "import pandas as pd\nWANTED = ['image', 'width', 'label']\ntable = pd.read_csv('a.csv')\nprint(len(table[WANTED]))\n"
    )
    done = rehearsed({"main.py": text})
    assert done.report.ended == "finished", done.report.why
    assert json.loads(done.report.learned)["columns"] == ["image", "width", "label"]


def test_of_fewer_rows_than_a_script_draws_at_random_all_are_drawn(rehearsed):
    pytest.importorskip("pandas")
    text = (
        "import pandas as pd\ntable = pd.read_csv('a.csv')\n"
        "print(len(table) == len(table.sample(n=1171)), len(table.sample(2)))\n"
        "print(len(table.sample(n=1171, replace=True)), len(table['label'].sample(frac=1)) == len(table))\n"
    )
    done = rehearsed({"main.py": text})
    assert (done.report.ended, done.stdout) == ("finished", "True 2\n1171 True\n"), done.report.why
    assert any("where 1171 are asked for" in item.what for item in done.standins("data"))


def test_more_rows_than_a_table_of_the_user_has_are_drawn_from_no_table(rehearsed):
    pytest.importorskip("pandas")
    done = rehearsed({"main.py": "import pandas as pd\npd.read_csv('a.csv').sample(3)\n", "a.csv": "label\n0\n1\n"})
    assert (done.report.ended, "larger sample" in done.report.why) == ("stopped", True)


def test_tables_that_are_joined_have_each_column_once(rehearsed):
    pytest.importorskip("pandas")
    text = (
        "import pandas as pd\nimages = pd.read_csv('meta.csv')[['file_id', 'subject_id', 'view']]\n"
        "labels = pd.read_csv('labels.csv')\nrows = pd.merge(images, labels, how='left', on=['subject_id'])\n"
        "print(rows.iloc[0]['file_id'], len(rows['label']) > 0)\n"
        "print('view_x' in images.merge(labels, on='subject_id', suffixes=('_x', '_y')))\n"
    )
    done = rehearsed({"main.py": text})
    assert (done.report.ended, done.stdout.splitlines()) == ("finished", ["image_0000.jpg True", "True"]), done.report.why


ROWS = "import csv\nopened = open('data/labels.csv', newline='')\nfound = []\n"


@pytest.mark.parametrize(
    "taken",
    [
        "for row in csv.reader(opened):\n    name, label, track = row\n    found.append(label)\n",
        "for name, label, track in csv.reader(opened):\n    found.append(label)\n",
        "for row in csv.reader(opened):\n    found.append((row[1], row[2])[0])\n",
    ],
)
def test_a_table_whose_rows_the_script_takes_apart_itself_is_as_wide(rehearsed, taken):
    done = rehearsed({"main.py": f"{ROWS}{taken}print(found[:3])\n"})
    assert (done.report.ended, done.stdout) == ("finished", "['label', '0', '1']\n"), done.report.why


def test_rows_of_a_table_have_names_of_classes_where_those_of_numbers_are_passed_over(rehearsed):
    text = (
        f"{ROWS}LABEL_NAMES = ['kart', 'bomb']\nfor name, label in csv.reader(opened):\n    if label in LABEL_NAMES:\n"
        "        found.append(LABEL_NAMES.index(label))\nassert found, 'num_samples=0'\nprint(found[:3])\n"
    )
    done = rehearsed({"main.py": text})
    assert (done.report.ended, done.stdout) == ("finished", "[0, 1, 0]\n"), done.report.why


def test_what_is_no_row_of_a_table_tells_no_width(rehearsed):
    done = rehearsed({"main.py": "import csv\nlist(csv.reader(open('a.csv')))\nfirst, second = ['only']\n"})
    assert (done.report.ended, "width" in json.loads(done.report.learned or "{}")) == ("stopped", False)


@pytest.mark.parametrize(
    "taken",
    [
        "for name, target in table.values:\n    found.append(target)\n",
        "class Images:\n    def __init__(self):\n        self.rows = table.values\n    def __getitem__(self, place):\n"
        "        name, target = self.rows[place]\n        return target\nfound = [Images()[0], Images()[1]]\n",
    ],
)
def test_a_table_has_no_more_columns_than_the_script_takes_its_rows_apart_into(rehearsed, taken):
    pytest.importorskip("pandas")
    other = "import pandas as pd\ntable = pd.read_csv('folds.csv')\nprint(table['kfold'], table['ID'], table['group'])\n"
    text = (
        f"import other\nimport pandas as pd\ntable = pd.read_csv('a.csv')\nfound = []\n{taken}print(list(table), found[:2])\n"
    )
    done = rehearsed({"main.py": text.replace("import other\n", ""), "other.py": other.replace("'ID'", "'ID', 'target'")})
    assert (done.report.ended, done.stdout) == ("finished", "['ID', 'target'] [0, 1]\n"), done.report.why


USED = "import pandas as pd\ntable = pd.read_csv('a.csv', usecols=['INDEX', 'WIDTH'])\n"
DROPPED = "import pandas as pd\ntable = pd.read_csv('a.csv')\nleft = table.drop(columns=['target', 'patient'])\n"
OWN = """
import pandas as pd
table = pd.read_csv('a.csv')
missing = [name for name in ('Edema', 'Lung Lesion') if name not in table.columns]
if missing:
    raise ValueError(f'Missing label columns: {missing}')
"""


@pytest.mark.parametrize(
    ("text", "columns"),
    [(USED, ["INDEX", "WIDTH"]), (OWN, ["Edema", "Lung Lesion"]), (DROPPED, ["patient", "target"])],
)
def test_columns_that_an_error_names_are_in_the_next_table(rehearsed, text, columns):
    pytest.importorskip("pandas")
    done = rehearsed({"main.py": f"{text}print(len(table) > 4, set({columns}) <= set(table.columns))\n"})
    assert (done.report.ended, done.stdout) == ("finished", "True True\n"), done.report.why


@pytest.mark.parametrize("row", ["table.loc[1]", "table.iloc[1]", "next(table.itertuples())", "next(table.iterrows())[1]"])
def test_a_column_is_asked_for_as_an_attribute_of_a_row(rehearsed, row):
    pytest.importorskip("pandas")
    text = f"import pandas as pd\ntable = pd.read_csv('a.csv')\nrow = {row}\nprint(row.image_id[:6], int(row.target))\n"
    done = rehearsed({"main.py": text})
    assert (done.report.ended, done.stdout[:7]) == ("finished", "image_ "), done.report.why


@pytest.mark.parametrize("kind", ["table", "table['label']"])
def test_a_method_that_pandas_removed_is_no_column(rehearsed, kind):
    pytest.importorskip("pandas")
    done = rehearsed({"main.py": f"import pandas as pd\ntable = pd.read_csv('a.csv')\n{kind}.append(table)\n"})
    assert done.report.why is not None
    assert "has no attribute 'append'" in done.report.why
