"""Pillow as augmentations were written for it: newer versions refuse what older ones took."""

from __future__ import annotations

from typing import Any

from ...stage import Stage

_BITS = 8


def stand_in(stage: Stage) -> None:
    def posterize(original: Any, image: Any, bits: Any) -> Any:
        if 1 <= bits <= _BITS:
            return original(image, bits)
        stage.note("libraries", f"Pillow's posterize of {bits} bits, which newer versions refuse, was that of older ones")
        mask = 255 & ~(2 ** (_BITS - max(0, min(_BITS, int(bits)))) - 1)
        return image.point([value & mask for value in range(256)] * len(image.getbands()))

    stage.when_imported("PIL.ImageOps", lambda library: stage.wrap(library, "posterize", posterize))
