"""Original and migrated runs are judged by their outputs and by what they print, but for timings."""

from __future__ import annotations

import platform
from pathlib import Path

import numpy as np
import pytest

from headrace.migrate.proving.confined_run import Completed
from headrace.migrate.proving.sandbox import Sandbox
from headrace.migrate.proving.verify import Recorded, ScriptRun, agree, compare, run_script
from headrace.migrate.reading.facts import Script


def run(
    stdout: str = "Top-1: 97.2%\n", outputs: np.ndarray | None = None, inputs: np.ndarray | None = None, exit_: int = 0
) -> ScriptRun:
    done = Completed(argv=("x",), exit=exit_, stdout=stdout, stderr="ValueError: no\n", stopped=None, seconds=1.0, isolation={})
    outputs = OUTPUTS if outputs is None else outputs
    return ScriptRun(done=done, sites={"e.py:3": Recorded(inputs=INPUTS if inputs is None else inputs, outputs=outputs)})


INPUTS = np.random.default_rng(0).random((7, 3, 8, 8), np.float32)
OUTPUTS = np.random.default_rng(1).normal(0, 5, (7, 10)).astype(np.float32)


def test_equal_within_rounding_passes() -> None:
    verdict = compare(run(), run(outputs=OUTPUTS + np.float32(1e-5)))
    assert (verdict.status, verdict.why, verdict.top1_agreement) == ("passed", None, 1.0)
    assert verdict.max_abs == pytest.approx(1e-5, rel=0.2)


def test_other_outputs_are_a_parity_failure() -> None:
    verdict = compare(run(), run(outputs=OUTPUTS[:, ::-1].copy()))
    assert (verdict.status, verdict.parity_failed) == ("failed", True)
    assert "differ by" in (verdict.why or "")
    assert compare(run(), run(outputs=np.full_like(OUTPUTS, np.nan))).status == "failed"


def test_other_words_are_a_parity_failure() -> None:
    verdict = compare(run(), run(stdout="Top-1: 96.1%\n"))
    assert verdict.parity_failed
    assert verdict.why == "it printed 'Top-1: 96.1%' instead of 'Top-1: 97.2%'"


def test_a_crash_random_data_and_a_call_never_made() -> None:
    assert compare(run(), run(exit_=1)).why == "the migrated script: ValueError: no"
    assert "at random" in (compare(run(), run(inputs=INPUTS[::-1].copy())).why or "")
    missing = ScriptRun(done=run().done, sites={})
    assert "never made" in (compare(run(), missing).why or "")
    assert compare(missing, missing).status == "passed"


def test_ties_agree_and_real_changes_do_not() -> None:
    tied = np.array([[1.0, 1.0 + 1e-7, 0.0]], np.float32)
    assert agree(tied, tied[:, [1, 0, 2]]) == (pytest.approx(1.2e-7, rel=0.5), 1.0, True)
    assert agree(np.array([[1.0, 0.0]]), np.array([[0.0, 1.0]])) == (1.0, 0.0, False)
    assert agree(np.zeros((2, 3)), np.zeros((2, 4)))[2] is False
    assert agree(tied[:, :, None, None], tied[:, [1, 0, 2], None, None]) == agree(tied, tied[:, [1, 0, 2]])


BLOCKS = """
import resource
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(10):
    block = bytearray(b"x" * 2**26)
    del block
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library keeps memory by rules of its own")
def test_memory_that_a_batch_needed_is_kept_for_the_next(tmp_path: Path) -> None:
    sandbox = Sandbox(scratch=tmp_path)
    sandbox.tree.mkdir()
    (sandbox.tree / "evaluate.py").write_text(BLOCKS)
    done = run_script(Script(path="evaluate.py", roles=(), loops=()), [], sandbox).done
    assert int(done.stdout) < 3 * 2 * 2**26 / 4096, "pages of both copies, cleared ten times over"


def test_a_set_has_another_order_than_where_the_labels_were_seen(tmp_path: Path) -> None:
    """So labels that hang on it are printed otherwise than the package has them (PS534)."""
    text = "print(list(set('zander amsel molch biber uhu kranich dachs'.split())))\n"
    sandbox = Sandbox(scratch=tmp_path)
    sandbox.tree.mkdir()
    (sandbox.tree / "evaluate.py").write_text(text)
    seen = sandbox.run([str(sandbox.tree / "evaluate.py")], sandbox.writable_folder()).stdout
    printed = run_script(Script(path="evaluate.py", roles=(), loops=()), [], sandbox).done.stdout
    assert sorted(seen) == sorted(printed)
    assert seen != printed


def test_what_a_script_writes_into_tables_is_compared_as_well(tmp_path: Path) -> None:
    ran = []
    for label in ("ant", "bee"):
        sandbox = Sandbox(scratch=tmp_path / label)
        sandbox.tree.mkdir(parents=True)
        (sandbox.tree / "main.py").write_text(f"open('answers.csv', 'w').write('a.jpg,{label}')\n")
        (sandbox.tree / "labels.txt").write_text("ant\nbee\n")
        ran.append(run_script(Script(path="main.py", roles=(), loops=()), [], sandbox))
    assert [one.written for one in ran] == [{"answers.csv": "a.jpg,ant"}, {"answers.csv": "a.jpg,bee"}]
    verdict = compare(*ran)
    assert (verdict.status, verdict.in_print) == ("failed", True)
    assert verdict.why == "it wrote 'a.jpg,bee' into answers.csv instead of 'a.jpg,ant'"
