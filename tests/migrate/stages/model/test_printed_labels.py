import numpy as np
import pytest

from headrace.migrate.stages.model.printed_labels import (
    PrintedOtherwise,
    named_otherwise,
    numbered_otherwise,
    printed_otherwise,
)

LABELS = ("ant", "bee", "cat")
OUTPUTS = np.eye(3, dtype=np.float32)[[0, 1, 2, 1, 0]]


@pytest.mark.parametrize(
    "text",
    [
        "a.jpg ant 0.9\nb.jpg bee 0.8\nc.jpg cat 0.7\nd.jpg bee 0.6\ne.jpg ant 0.5\n",
        "a.jpg bee\nb.jpg ant\nc.jpg bee\nd.jpg cat\ne.jpg ant\n",  # by another score: no table says bee and ant of ant
        "loading\n0.9 ant\n0.8 ant\n0.7 bee\n0.6 bee\n0.5 cat\ndone in 3 s\n",  # sorted
        "cat/1.jpg -> ant\ncat/2.jpg -> bee\ncat/3.jpg -> cat\nant/4.jpg -> bee\nant/5.jpg -> ant\n",
        "accuracy 80 %\n",
        "a.jpg\n1 ant 0.9\n2 bee 0.1\nb.jpg\n1 bee 0.8\n2 cat 0.1\n1 cat\n2 ant\n1 bee\n2 ant\n1 ant\n2 bee\n",
        "ant 0.9\nbee 0.1\ncat 0.0\n" * 5,  # all of them, in their order
        "classes: ant, bee, cat\naccuracy ant 0.4\n",
        "true ant said bee\ntrue bee said bee\ntrue cat said ant\ntrue ant said bee\ntrue cat said cat\n",
        "0 0.9\n1 0.8\n2 0.7\n1 0.6\n0 0.5\n",
        "image one\nimage two\nimage three\nimage four\nimage five\n",
        "",
    ],
)
def test_a_script_that_prints_the_labels_or_none_says_nothing_else(text: str) -> None:
    assert printed_otherwise(text, LABELS, OUTPUTS) is None


def test_other_labels_than_the_packages_are_seen() -> None:
    text = "a.jpg bee 0.9\nb.jpg cat 0.8\nc.jpg cat 0.7\nd.jpg bee 0.6\ne.jpg ant 0.5\n"
    assert printed_otherwise(text, LABELS, OUTPUTS) == PrintedOtherwise("bee", "ant", 5, 2)
    text = "a.jpg cat 0.9\nb.jpg cat 0.8\nc.jpg bee 0.7\nd.jpg bee 0.6\ne.jpg bee 0.5\n"  # in an order that nobody knows
    assert printed_otherwise(text, LABELS, OUTPUTS) == PrintedOtherwise("cat", "ant", 5, 2, least=True)


def test_of_the_best_few_of_each_image_the_first_is_held_to_the_package() -> None:
    text = "1 bee 0.9\n2 ant 0.1\n1 bee 0.8\n2 cat 0.1\n1 cat\n2 ant\n1 bee\n2 ant\n1 ant\n2 bee\n"
    assert printed_otherwise(text, LABELS, OUTPUTS) == PrintedOtherwise("bee", "ant", 5, 1)


def test_a_table_in_another_order_is_seen_line_by_line() -> None:
    text = "a.jpg bee 0.9\nb.jpg cat 0.8\nc.jpg ant 0.7\nd.jpg cat 0.6\ne.jpg bee 0.5\n"
    assert printed_otherwise(text, LABELS, OUTPUTS) == PrintedOtherwise("bee", "ant", 5, 5)
    text = "a.jpg bee 0.9\nb.jpg ant 0.8\nc.jpg cat 0.7\nd.jpg ant 0.6\ne.jpg bee 0.5\n"  # as often as the package
    assert printed_otherwise(text, LABELS, OUTPUTS) == PrintedOtherwise("bee", "ant", 5, 4)


def test_one_image_is_enough_where_a_label_is_printed() -> None:
    assert printed_otherwise("It is a bee.\n", LABELS, OUTPUTS[:1]) == PrintedOtherwise("bee", "ant", 1, 1)
    assert printed_otherwise("It is an ant.\n", LABELS, OUTPUTS[:1]) is None


def test_names_that_follow_from_the_label_and_are_none_are_seen() -> None:
    text = "a.jpg an insect 0.9\nb.jpg an insect 0.8\nc.jpg a mammal 0.7\nd.jpg an insect 0.6\ne.jpg an insect 0.5\n"
    assert printed_otherwise(text, LABELS, OUTPUTS) == PrintedOtherwise("an insect", "ant", 5)


def test_a_line_that_names_no_class_among_such_that_do_says_something_else() -> None:
    text = "a.jpg ant 0.9\nb.jpg unknown 0.3\nc.jpg cat 0.7\nd.jpg bee 0.6\ne.jpg ant 0.5\n"
    assert printed_otherwise(text, LABELS, OUTPUTS) == PrintedOtherwise("unknown", "bee", 5, 1)


@pytest.mark.parametrize(
    ("labels", "text"),
    [
        (("T-shirt/top", "coat", "bag"), "(T-shirt/top)\ncoat\nbag\ncoat\nT-shirt/top\n"),
        (("n01 great_gray_owl", "n02 bee", "n03 cat"), "great gray owl\nBEE\nCat\nBEE\ngreat gray owl\n"),
        (("great_gray_owl", "bee", "cat"), "great gray owl\nbee\ncat\nbee\ngreat gray owl\n"),
        (("tench, Tinca tinca", "ant, emmet", "cat"), "x.jpg tench 3\nx.jpg ant 3\nx.jpg cat 3\nx.jpg ant 3\nx.jpg tench 3\n"),
    ],
)
def test_a_label_may_be_printed_in_another_form(labels: tuple[str, ...], text: str) -> None:
    assert printed_otherwise(text, labels, OUTPUTS) is None


@pytest.mark.parametrize(
    "text",
    [
        "a.jpg 0\nb.jpg 1\nc.jpg 2\nd.jpg 1\ne.jpg 0\n",
        "1,0\n2,1\n3,2\n4,1\n5,0\n",  # rows have numbers, too
        "1 of 5\n2 of 5\n3 of 5\n4 of 5\n5 of 5\n",
        "zander 0.91\nuhu 0.92\namsel 0.41\nuhu 0.92\nzander 0.91\n",
        "im_1 91%\nim_2 92%\nim_3 41%\nim_4 92%\nim_5 91%\n",
        "7\n7\n7\n7\n7\n",
        "2\n1\n",
        "",
    ],
)
def test_numbers_that_are_the_classes_or_do_not_follow_from_them_are_nothing_else(text: str) -> None:
    assert numbered_otherwise(text, OUTPUTS) is None


def test_numbers_of_classes_that_begin_elsewhere_are_seen() -> None:
    text = "id,class\na.jpg,1\nb.jpg,2\nc.jpg,3\nd.jpg,2\ne.jpg,1\n"
    assert numbered_otherwise(text, OUTPUTS) == PrintedOtherwise("1", "0", 5, 5)
    text = "1 10 0.9\n2 1 0.8\n3 20 0.7\n4 1 0.6\n5 10 0.5\n"
    assert numbered_otherwise(text, OUTPUTS) == PrintedOtherwise("10", "0", 5, 3)


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("a.jpg bee 0.9\nb.jpg ant 0.2\nc.jpg bee 0.7\n", None),
        ("file,class\na.jpg,bee\nb.jpg,ant\nc.jpg,bee\n", None),
        ("a.jpg yes\nb.jpg no\nc.jpg yes\n", None),
        ("accuracy of bee 0.9\n", None),
        ("a.jpg ant 0.9\nb.jpg bee 0.2\nc.jpg ant 0.7\n", 3),
        ("a.jpg bee 0.9\nb.jpg bee 0.2\nc.jpg bee 0.7\n", 1),
        ("file,class\na.jpg,ant\nb.jpg,bee\nc.jpg,ant\n", 3),
    ],
)
def test_the_only_label_is_held_to_where_it_is_named(text: str, count: int | None) -> None:
    assert named_otherwise(text, "bee", np.array([True, False, True])) == count
