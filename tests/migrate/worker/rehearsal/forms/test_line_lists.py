"""How the lines of made lists are written."""

import pytest

READ = """
from PIL import Image
classes = ["ant", "bee", "sea horse"]
label_to_index = {name: number for number, name in enumerate(classes)}
found = []
for line in open("lists/train.txt"):
    BODY
print(len(found), found[:4], Image.open(found[0][0]).size)
"""
NUMBERS = "96 [('image_0000.jpg', 0), ('image_0001.jpg', 1), ('image_0002.jpg', 2), ('image_0003.jpg', 0)] (256, 256)\n"


@pytest.mark.parametrize(
    ("body", "attempts"),
    [
        ("path, label = line.split(); found.append((path, int(label)))", 1),
        ("parts = line.strip().split(','); found.append((parts[0], int(parts[1])))", 2),
        ("path, label = line.rstrip().split('\\t'); found.append((path, int(label)))", 2),
        ("path, label = line.rstrip().split(sep=';'); found.append((path, int(label)))", 2),
        ("found.append((line.strip().split('\\t')[0], int(line.strip().split('\\t')[-1])))", 2),
        # Names in place of numbers, and signs in paths that take no line apart.
        ("path, label = line.rstrip().split(','); found.append((path.split('/')[-1], label_to_index[label]))", 3),
        ("path, label = line.rstrip().split('\\t'); found.append((path, classes.index(label)))", 3),
    ],
)
def test_lines_are_taken_apart_as_they_are_made(rehearsed, body, attempts):
    done = rehearsed({"main.py": READ.replace("BODY", body)}, classes=3)
    count = done.stdout.split()[0] if done.stdout else ""
    assert (done.report.ended, done.stdout) == ("finished", NUMBERS.replace("96", count, 1)), done.report.why
    assert done.report.attempts == attempts


def test_a_reader_of_tables_takes_lines_apart_at_its_own_sign(rehearsed):
    text = "import csv\nrows = [(row[0], int(row[1])) for row in csv.reader(open('train.txt'))]\nprint(rows[1])"
    done = rehearsed({"main.py": text}, classes=3)
    assert (done.report.ended, done.stdout) == ("finished", "('image_0001.jpg', 1)\n"), done.report.why


def test_a_line_that_is_taken_for_a_path_as_a_whole_has_another_sign(rehearsed):
    text = (
        "from PIL import Image\n"
        "def opened(line):\n    return Image.open(line[0])\n"
        "lines = [line.strip().split('\\t') for line in open('train.txt')]\n"
        "print(opened(lines[1]).size, lines[1][1:])\n"
    )
    done = rehearsed({"main.py": text}, classes=3)
    assert (done.report.ended, done.stdout) == ("finished", "(256, 256) ['1']\n"), done.report.why


def test_lines_whose_class_is_not_known_are_left_out_until_they_have_names(rehearsed):
    body = "path, label = line.rstrip().split(',')\n    if label_to_index.get(label) is not None: found.append((path, 1))"
    text = READ.replace("BODY", body).replace("print(", "assert found, 'no images were found'\nprint(")
    done = rehearsed({"main.py": text}, classes=3)
    assert (done.report.ended, done.report.attempts) == ("finished", 3), done.report.why


def test_a_list_that_is_the_repositorys_own_teaches_nothing(rehearsed):
    text = "rows = [line.split(',')[1] for line in open('train.txt')]\n"
    done = rehearsed({"main.py": text, "train.txt": "a 1\nb 2\n"})
    assert done.report.ended == "stopped"
    assert "line_sign" not in done.report.learned
