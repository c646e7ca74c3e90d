"""A part of a page is replaced, and the others stay."""

from tests.benchmarks.serving.page import write_part


def test_parts_are_replaced_each_by_itself(tmp_path):
    path = tmp_path / "page.md"
    write_part(path, "## B\n\nb\n")
    write_part(path, "# A\n\na\n")
    write_part(path, "## C\n\nc")
    assert path.read_text() == "# A\n\na\n\n## B\n\nb\n\n## C\n\nc\n"
    write_part(path, "## B\n\nlonger\n")
    write_part(path, "# Other\n\na\n")
    assert path.read_text() == "# Other\n\na\n\n## B\n\nlonger\n\n## C\n\nc\n"
