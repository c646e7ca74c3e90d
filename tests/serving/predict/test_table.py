import io

from rich.console import Console

from headrace.serving.predict.predict import Row
from headrace.serving.predict.table import described, printable, table


def printed(*rows, width=100):
    console = Console(file=io.StringIO(), width=width)
    console.print(table(rows))
    return console.file.getvalue()


def found(*names):
    return [{"label": name, "index": number, "probability": 0.5 / (number + 1)} for number, name in enumerate(names)]


def test_classes_and_errors():
    text = printed(
        Row(image="a.jpg", answer={"predictions": found("tabby cat", "tiger cat", "lynx")}), Row(image="b.jpg", error="empty")
    )
    first, second = text.splitlines()[1:]
    assert first.split() == ["a.jpg", "tabby", "cat", "50.0%", "tiger", "cat", "25.0%,", "lynx", "16.7%"]
    assert second.split() == ["b.jpg", "error", "empty"]


def test_labels_of_which_none_holds_and_classes_without_names():
    text = printed(Row(image="a", answer={"task": "multi-label", "predictions": []}))
    assert "no label above its threshold" in text
    unnamed = [{"label": None, "index": 17, "probability": 0.25}]
    assert "17    25.0%" in printed(Row(image="a", answer={"predictions": unnamed}))


def test_several_outputs_have_a_line_each():
    heads = {"color": {"predictions": found("red", "blue")}, "kind": {"predictions": found("car")}}
    lines = printed(Row(image="a.jpg", answer={"heads": heads}), Row(image="b.jpg", error="empty")).splitlines()
    assert [line.split()[:3] for line in lines] == [
        ["image", "output", "best"], ["a.jpg", "color", "red"], ["kind", "car", "50.0%"], ["b.jpg", "error", "empty"]
    ]  # fmt: skip


def test_vectors():
    text = printed(Row(image="a.jpg", answer={"embedding": [3.0, 4.0, 0.0, 0.0, 0.0]}))
    assert "5 numbers of length 5" in text
    assert "3, 4, 0, 0, ..." in text


def test_names_steer_no_terminal_and_are_no_markup():
    text = printed(Row(image="\x1b[31m\udcff[bold]x\n.jpg", answer={"predictions": found("[red]\x07")}))
    assert "\\x1b[31m\\udcff[bold]x\\n.jpg" in text
    assert "[red]\\x07" in text
    assert "\x1b" not in text


def test_a_line_counts_them():
    assert described([Row(image="a"), Row(image="b", error="x")]) == "2 images, 1 of them could not be answered"
    assert described([Row(image="a", error="x")]) == "1 image, 1 of them could not be answered"


def test_what_steers_a_terminal_is_spelled_out():
    assert printable("é 猫\t\udc80\u202e\x1b[2J") == r"é 猫\t\udc80\u202e\x1b[2J"
