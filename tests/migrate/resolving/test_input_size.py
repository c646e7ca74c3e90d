"""The input shape that a repository states."""

import pytest

from headrace.migrate.resolving.input_size import from_settings


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"conf/data.yaml": "data:\n  image_size: 224  # pixels\n  batch_size: 8\n"}, ((3, 224, 224), "conf/data.yaml", 2)),
        ({"a.json": '{"name": "x",\n "img_size": [192, 256],\n "n": 1}'}, ((3, 192, 256), "a.json", 2)),
        ({"a.toml": "[data]\nside = 96\n"}, None),
        ({"a.toml": "[data]\ninput_size = 96\n"}, ((3, 96, 96), "a.toml", 2)),
        ({"a.yaml": "- input_size: (64, 64)\n", "b.yml": "img_size: 64\n"}, ((3, 64, 64), "a.yaml", 1)),
        ({"a.yaml": "img_size: 64\n", "b.yaml": "img_size: 32\n"}, None),
        ({"a.yaml": "image_size: 1\n"}, None),
        ({"a.yaml": "image_size: 224.5\n", "b.yaml": "image_size: ${size}\n", "c.json": '{"hidden_size": 768}'}, None),
        ({".git/a.yaml": "image_size: 224\n", "a.txt": "image_size: 224\n"}, None),
    ],
)
def test_files_of_settings_state_a_size_where_they_agree(tmp_path, files, expected):
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert from_settings(tmp_path) == expected
