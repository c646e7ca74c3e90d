"""What counts as a false alarm, and the page that says how many there were."""

import pytest

from . import page
from .clean import kind, untried


@pytest.mark.parametrize(
    ("text", "lossy", "status", "expected"),
    [
        ("output 0 differs by 1e-2, more than the tolerance 1e-4", False, "refused", "alarm"),
        ("top-1 agrees on 90.00% of 64 images, less than 99.5%", True, "refused", "judged"),
        ("what tells rows apart is 0.9 times as large, further from 1 than 2%", True, "refused", "alarm"),
        ("row 3 of output 0 depends on the rows beside it", True, "refused", "alarm"),
        ("on inputs that are rare (black, ...) output 0 differs by 1, more than the tolerance", True, "refused", "alarm"),
        ("3 of 64 rows are NaN or infinite where the model's own are not", True, "refused", "alarm"),
        ("the model gives every image the same class, so agreement proves nothing", True, "refused", "unprovable"),
        ("the process's memory grew by 2 MB with every call", False, "failed", "alarm"),
        ("OpenVINO has no operator for this", False, "failed", "failed"),
    ],
)
def test_what_a_refusal_is(text, lossy, status, expected):
    assert kind(text, lossy=lossy, status=status) == expected


def test_what_was_never_run_was_not_refused():
    assert untried("openvino int8+bf16: this CPU has no int8+bf16 instructions that OpenVINO could use")
    assert not untried("openvino int8: top-1 agrees on 68.75% of 64 images, less than 99.5%")


def test_the_page_holds_what_was_measured():
    faults = {"rows": ["| one | candidate | parity | any |"], "minutes": 3.2}
    text = page.rendered({"faults": faults})
    assert "1 faults are planted" in text
    assert "false alarms" not in text
    clean = {"runs": 9, "models": 4, "counts": {"clean": 8, "judged": 1}, "alarms": []}
    mutants = {"a.py": {"mutants": 5, "every": 8, "survivors": {"- x + y": "the same"}}}
    text = page.rendered({"faults": faults, "clean": clean, "mutants": mutants})
    assert "**0 false\nalarms**" in text
    assert "| `a.py`, each 8th | 5 | 1 |" in text
    assert "- `a.py`: `- x + y`: the same" in text
    assert text.endswith("| one | candidate | parity | any |\n")
    assert "{" not in text
