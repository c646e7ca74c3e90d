"""What decides the package of an ONNX file."""

import pytest

from headrace.errors import MigrateError
from headrace.migrate.named.packaged import read
from headrace.migrate.named.source import Options


@pytest.mark.parametrize("name", ["net", "net[1]", "net*"])
def test_the_weights_beside_it_count(tmp_path, name):
    path = tmp_path / f"{name}.onnx"
    path.write_bytes(b"graph")
    (tmp_path / "other.data").write_bytes(b"")
    alone = read(str(path), Options())
    assert alone.readable == (path,)
    (tmp_path / f"{name}.onnx.data").write_bytes(b"weights")
    assert read(str(path), Options()).readable == (path, tmp_path / f"{name}.onnx.data")
    assert read(str(path), Options()).key() != alone.key()
    with pytest.raises(MigrateError, match="holds its weights"):
        read(str(path), Options(checkpoint=path))
