"""Every case of test_conformance.py put to both servers, and lint held to what a real Triton loads."""

import shutil
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from headrace.errors import TritonError
from headrace.serving.triton.config import RunSettings
from headrace.serving.triton.documented import DOCUMENTED
from headrace.serving.triton.run import TritonServer
from tests.benchmarks.serving import perf_analyzer_binary
from tests.benchmarks.serving.perf_analyzer import PerfRun, run
from tests.serving import test_conformance as suite
from tests.serving.triton.broken_models import BROKEN

# Cases on which the two differ, by the key of their reason; over which transports, where not over all.
HTTP = ("http-json", "http-binary")
KNOWN = {
    "more classes than there are": ("class-count", None),
    "model not served": ("digests", None),
    "an output twice": ("output-twice", None),
    "no time": ("deadlines", None),
    "a sequence": ("sequences", None),
    "shared memory in": ("shared-memory", ("http-json", "http-binary", "grpc")),
    "shared memory out": ("shared-memory", ("http-json", "http-binary", "grpc")),
    "shared memory without a size": ("shared-memory", HTTP),
    "shared memory before its begin": ("shared-memory", ("http-json", "http-binary", "grpc")),
    "shared memory by number": ("json-numbers", HTTP),
    "negative size": ("json-numbers", HTTP),
    "negative classification": ("json-numbers", HTTP),
    "classification as text": ("json-numbers", HTTP),
    "classification as a truth": ("json-numbers", HTTP),
    "negative priority": ("json-numbers", HTTP),
    "priority as text": ("json-numbers", HTTP),
    "timeout as a fraction": ("json-numbers", HTTP),
    "timeout as a truth": ("json-numbers", HTTP),
}
CASES = {**suite.GOOD, **{name: request for name, (_, request) in suite.BAD.items()}}


@pytest.fixture(scope="module")
def both(triton, models, server_class, tmp_path_factory):
    """The embedded server and Triton over the same folder, `damaged` among its models."""
    tmp = tmp_path_factory.mktemp("both")
    embedded = server_class(models, tmp)
    ports = RunSettings(http_port=0, grpc_port=0, metrics_port=0)
    try:
        with TritonServer(triton, models, tmp / "triton.log", ports) as real:
            yield SimpleNamespace(embedded=embedded, triton=real)
    finally:
        embedded.stop()


def same(one, two):
    """Status and tensors; the words of errors are each server's own."""
    if len(one) != len(two) or one[0] != two[0]:
        return False
    if len(one) == 2:
        return True
    return one[1] == two[1] and all(
        kind == two[2][name][0] and array.shape == two[2][name][1].shape and _equal(array, two[2][name][1])
        for name, (kind, array) in one[2].items()
    )


def _equal(one, two):
    if one.dtype == object:  # value:index:label, the value to six digits
        return [text.split(b":")[1:] for text in one.ravel()] == [text.split(b":")[1:] for text in two.ravel()]
    return np.allclose(one, two, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", CASES)
def test_the_suite_on_both(both, name):
    for transport, make in suite.TRANSPORTS.items():
        ours, theirs = (make(server).infer(CASES[name]) for server in (both.embedded, both.triton))
        key, only = KNOWN.get(name, ("", ()))
        if key and (only is None or transport in only):
            assert key in DOCUMENTED
            assert not same(ours, theirs), f"no longer a difference over {transport}: take it from the list"
        else:
            assert same(ours, theirs), (transport, ours, theirs)


@pytest.mark.parametrize("transport", ["http-binary", "grpc", "grpc-stream"])
def test_images_on_both(both, make_photo, reference, transport):
    for kind in ("PNG", "JPEG"):
        photo = make_photo(5, (64, 48), kind)
        request = suite.case("tiny_classify", [suite.image(photo)], [suite.wanted(classification=1)])
        answers = [suite.TRANSPORTS[transport](server).infer(request) for server in (both.embedded, both.triton)]
        best = [int(answer[2]["scores"][1].ravel()[0].split(b":")[1]) for answer in answers]
        assert best == [int(np.argmax(reference(photo)[1]))] * 2
    refused = suite.case("tiny_classify", [suite.image(b"no image")])
    codes = [suite.TRANSPORTS[transport](server).infer(refused)[0] for server in (both.embedded, both.triton)]
    assert codes[0] == codes[1]


def test_perf_analyzer_drives_it(both):
    try:
        binary = perf_analyzer_binary.provide()
    except perf_analyzer_binary.Unavailable as reason:
        pytest.skip(str(reason))
    for protocol in ("http", "grpc"):
        address = getattr(both.triton, protocol)
        wanted = PerfRun(address=address, protocol=protocol, model="tiny", concurrency=(2,), window_seconds=0.5)
        (row,) = run(binary, wanted)
        assert row.inferences_per_second > 0


def _combined(models: Path, out: Path, names: list[str]) -> dict[str, str]:
    """One folder of many broken models: `out`/xNN... for each; the name of the model that each is about."""
    about = {}
    for number, name in enumerate(names):
        one = out.parent / "one"
        for model in ("tiny", "tiny_decode", "tiny_classify"):
            shutil.copytree(models / model, one / model)
        BROKEN[name].edit(one)
        for model in ("tiny", "tiny_decode", "tiny_classify"):
            if model != BROKEN[name].model and BROKEN[name].model != "tiny_classify":
                continue
            target = out / model.replace("tiny", f"x{number:02}")
            shutil.copytree(one / model, target)
            config = target / "config.pbtxt"
            config.write_bytes(config.read_bytes().replace(b'"tiny', f'"x{number:02}'.encode()))
        about[name] = BROKEN[name].model.replace("tiny", f"x{number:02}")
        shutil.rmtree(one)
    # One that serves, so that the server does.
    for model in ("tiny", "tiny_decode"):
        shutil.copytree(models / model, out / model)
    return about


# This one keeps Triton from ever serving, so it is tried by itself.
FATAL = "no model.py"
# And over this one Triton 2.51 ends by SIGSEGV more often than not.
CRASHES = "warm-up with too many rows"
CHUNKS = [[name for name in BROKEN if name not in (FATAL, CRASHES)][begin : begin + 20] for begin in range(0, len(BROKEN), 20)]


@pytest.mark.parametrize("names", CHUNKS, ids=range(len(CHUNKS)))
def test_lint_says_what_triton_does(triton, run_triton, models, tmp_path, names):
    about = _combined(models, tmp_path / "broken", names)
    with run_triton(tmp_path / "broken") as server:
        ready = {row["name"] for row in server.index() if row["state"] == "READY"}
    assert {name: about[name] not in ready for name in names} == {name: BROKEN[name].refused for name in names}


def test_a_python_model_without_its_file_is_fatal(triton, run_triton, models, tmp_path):
    """Why `headrace triton run` lints first. When this fails, Triton has mended it."""
    _combined(models, tmp_path / "broken", [FATAL])
    server = run_triton(tmp_path / "broken", start_timeout=15, exit_timeout=1)
    with pytest.raises(TritonError, match="did not serve within 15 s(.|\n)*model file not found"), server:
        pass


def test_a_warm_up_with_too_many_rows_is_refused_or_worse(triton, run_triton, models, tmp_path):
    about = _combined(models, tmp_path / "broken", [CRASHES])
    try:
        with run_triton(tmp_path / "broken") as server:
            ready = {row["name"] for row in server.index() if row["state"] == "READY"}
    except TritonError as error:
        assert "Triton ended with status -11" in str(error)  # noqa: PT017  both may happen
    else:
        assert about[CRASHES] not in ready
