"""Pickles in requests (CVE-2024-2912, CVE-2025-27520): bytes stay bytes. Nothing in serving can unpickle at all."""

import ast
import io
import json
import pickle
from pathlib import Path

import numpy as np
import pytest

import headrace.serving

SERVING = Path(headrace.serving.__file__).parent


class Attack:
    def __init__(self, marker: Path):
        self.marker = marker

    def __reduce__(self):
        return Path.touch, (self.marker,)


def test_pickles_are_bytes(target, request_to, tmp_path):
    marker = tmp_path / "executed"
    pickled = pickle.dumps(Attack(marker))
    pickle.loads(pickled)  # that it works
    assert marker.exists()
    marker.unlink()
    array = io.BytesIO()
    np.save(array, np.array([Attack(marker)], dtype=object), allow_pickle=True)
    for body in (pickled, array.getvalue()):
        for kind in ("application/octet-stream", "application/x-python-pickle", "application/vnd.bentoml+pickle", "image/png"):
            headers = {"Content-Type": kind, "Payload-Container": "NdarrayContainer", "Inference-Header-Content-Length": "0"}
            for path in ("/v1/classify/tiny", "/v2/models/tiny/infer", "/v2/models/tiny_classify/infer"):
                status, _ = request_to(target.http, "POST", path, body, headers)
                assert status == 400
        entry = {"name": "IMAGE", "datatype": "BYTES", "shape": [1, 1], "parameters": {"binary_data_size": len(body) + 4}}
        header = json.dumps({"inputs": [entry]}).encode()
        data = header + len(body).to_bytes(4, "little") + body
        headers = {"Inference-Header-Content-Length": str(len(header))}
        assert request_to(target.http, "POST", "/v2/models/tiny_classify/infer", data, headers)[0] == 400
    assert not marker.exists()


FORBIDDEN = {"pickle", "cPickle", "dill", "cloudpickle", "marshal", "shelve", "joblib"}


def _can(node: ast.AST) -> bool:
    """Whether it unpickles or evaluates."""
    match node:
        case ast.Import():
            return bool({alias.name.split(".")[0] for alias in node.names} & FORBIDDEN)
        case ast.ImportFrom():
            return (node.module or "").split(".")[0] in FORBIDDEN
        case ast.keyword():
            return node.arg in ("allow_pickle", "weights_only")
        case ast.Call(func=ast.Name(id=name)):
            return name in ("eval", "exec", "compile", "__import__")
    return False


@pytest.mark.parametrize(
    "source", ["import pickle", "from dill import x", "f(allow_pickle=1)", "eval('1')", "import a, marshal.b"]
)
def test_what_unpickles_or_evaluates_is_seen(source):
    assert any(map(_can, ast.walk(ast.parse(source))))


def test_no_source_of_serving_can_unpickle_or_evaluate():
    paths = [path for path in sorted(SERVING.rglob("*.py")) if "bench" not in path.parts]
    assert len(paths) > 150
    found = [(path.name, node.lineno) for path in paths for node in ast.walk(ast.parse(path.read_text())) if _can(node)]
    assert found == []
