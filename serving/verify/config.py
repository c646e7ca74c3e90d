"""What `headrace verify` asks, and how."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ..options import OptionGroup, option

_HEADER = re.compile(r"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([\x20-\x7e]*)")


def _path(text: str) -> Path:
    return Path(text)


@dataclass(frozen=True, kw_only=True)
class VerifyConfig(OptionGroup):
    """An endpoint's address and the folder of packaged models to hold it to; `model` may be left out where that has one."""

    title = "Options"

    url: str
    models: Path
    model: str | None = option(None, "The packaged model, where there are several.", unset="the only one")
    served_as: str | None = option(None, "What the server calls it.", unset="the package's name")
    field: str | None = option(None, "The form's field that takes the image.", unset="found by trying")
    images: Path | None = option(
        None, "A folder of images to ask about as well, 16 of them.", parse=_path, unset="generated ones alone"
    )
    header: tuple[str, ...] = option((), "A header to send, as in 'Host: model.example.com'; may be repeated.", metavar="TEXT")
    token: str | None = option(
        None, "A bearer token to send; HEADRACE_VERIFY_TOKEN keeps it off the command line.", unset="none"
    )
    tls_ca: Path | None = option(
        None, "The authority that signed the server's certificate, a PEM file.", parse=_path, unset="the system's"
    )
    tolerance: float = option(1e-3, "How far answers may be off, as a share of what tells images apart.", above=0, most=0.5)
    timeout_seconds: float = option(10.0, "How long one answer may take.", above=0)
    max_answer_bytes: int = option(
        16 << 20, "The largest answer that is read, in MiB.", name="max-answer-mib", unit=1 << 20, least=1
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        for one in self.header:
            if _HEADER.fullmatch(one) is None:
                raise ValueError(f"--header must be like 'Name: value', got {one!r}")
        if self.token is not None and not (self.token and self.token.isascii() and self.token.isprintable()):
            raise ValueError("--token must be printable ASCII without line breaks")

    @property
    def headers(self) -> Mapping[str, str]:
        """What goes with every request."""
        found = filter(None, map(_HEADER.fullmatch, self.header))
        return {
            **{one[1]: one[2] for one in found},
            **({} if self.token is None else {"Authorization": f"Bearer {self.token}"}),
        }
