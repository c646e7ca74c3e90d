"""Choices that a grammar makes, all from one seeded source: the same seed and number always give the same case."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")

# Sizes and numbers at which parsers differ: ends of ranges, signs, and what does not fit into a register.
NUMBERS = (
    0, 1, -1, 2, 3, 4, 7, 15, 16, 17, 127, 128, 255, 256, 767, 768, 769, 3071, 3072, 3073, 65535, 65536,
    2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**53, 2**53 + 1, 2**62, 2**63 - 1, 2**63, 2**64 - 1, 2**64, 2**70, 10**30, -(2**31),
    -(2**63),
)  # fmt: skip

TEXTS = (
    "", " ", "0", "1", "-1", "a", "tiny", "images", "scores", "IMAGE", "..", "../..", "a/b", "\0", "a\0b", "\r\n", "\t", "\x7f",
    "é", "\u00b2", "\u0663", "\u202e", "\ufeff", "\U0001f600", "\ud800", "null", "NaN", "true", "%00", "%2e%2e%2f", "${x}",
    "{0}",
    "%s%n", "'", '"', "\\", "a" * 1025,
)  # fmt: skip


class Draw:
    """The choices of one case."""

    def __init__(self, seed: int, number: int) -> None:
        self.random = random.Random(f"{seed}:{number}")

    def pick(self, values: Sequence[T]) -> T:
        return self.random.choice(values)

    def weighted(self, values: dict[T, float]) -> T:
        """A key, as often as its weight says."""
        return self.random.choices(list(values), list(values.values()))[0]

    def chance(self, probability: float) -> bool:
        return self.random.random() < probability

    def between(self, low: int, high: int) -> int:
        """Both ends included."""
        return self.random.randint(low, high)

    def bytes(self, most: int, least: int = 0) -> bytes:
        return self.random.randbytes(self.between(least, most))

    def number(self) -> int:
        return self.pick(NUMBERS) + (self.between(-2, 2) if self.chance(0.2) else 0)

    def text(self) -> str:
        """Something between a known name and characters of any plane."""
        if self.chance(0.7):
            return self.pick(TEXTS)
        return "".join(chr(self.between(0, self.pick((0x7F, 0xFF, 0xD7FF, 0x10FFFF)))) for _ in range(self.between(0, 9)))

    def some(self, make: Callable[[], T], most: int) -> list[T]:
        return [make() for _ in range(self.between(0, most))]

    def pieces(self, data: bytes, most: int = 4) -> tuple[bytes, ...]:
        """The data cut at up to `most` places, to arrive in separate packets."""
        cuts = sorted({self.between(0, len(data)) for _ in range(self.between(0, most))})
        ends = [*cuts, len(data)]
        return tuple(data[begin:end] for begin, end in zip([0, *cuts], ends, strict=True) if end > begin)

    def damage(self, data: bytes, words: Sequence[bytes] = (), within: int | None = None, times: int = 4) -> bytes:
        """Bytes changed, put in, taken out, repeated or cut off, and words of the format put in; in the first `within`
        bytes."""
        changed = bytearray(data)
        for _ in range(self.between(1, times)):
            at = self.random.randrange(max(1, min(len(changed), within or len(changed))))
            kind = self.between(0, 7 if words else 6)
            if kind == 0 and changed:
                changed[at] = self.between(0, 255)
            elif kind == 1 and changed:
                changed[at] ^= 1 << self.between(0, 7)
            elif kind == 2:
                changed[at:at] = self.bytes(8, 1)
            elif kind == 3:
                del changed[at : at + self.between(1, 40)]
            elif kind == 4 and self.chance(0.3):
                del changed[at:]
            elif kind == 5:
                changed[at:at] = changed[at : at + self.between(1, 64)]
            elif kind == 6:
                changed[at : at + 4] = self.pick((b"\xff\xff\xff\xff", b"\0\0\0\0", b"\x7f\xff\xff\xff", b"\0\0\0\x80"))
            elif kind == 7:
                changed[at : at + self.between(0, 3)] = self.pick(words)
        return bytes(changed)
