"""A folder as transformers' `save_pretrained` writes it: config.json, weights, preprocessor_config.json."""

from __future__ import annotations

from ..source import Source
from .hugging_face import is_folder, read_folder

SOURCE = Source(form="a folder of save_pretrained", order=30, takes=is_folder, read=read_folder)
