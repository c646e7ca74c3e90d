"""Query strings of /v1/classify: known and unknown parameters, numbers of every spelling, and percent signs that mean
nothing."""

from __future__ import annotations

from urllib.parse import quote

from case import Answer, HttpCase, ask
from drawing import Draw
from oracle import strict_json
from world import World, images, wrong_predictions

WEIGHT = 6

_PNG = images()[6]
_VALUES = (
    "1", "5", "7", "0", "-1", "1000", "1001", "01", "+5", "5.0", "5e0", "0x5", "1_0", " 5", "5 ", "", "nan", "inf", "-inf",
    "1e400",
    "1e-400", "0.001", "250", "3600000", "3600001", "true", "null", "[]", "\u0665", "\uff15", "5\0", "5;k=6",
    "99999999999999999999",
)  # fmt: skip


def case(draw: Draw, world: World) -> HttpCase:
    """One image with a query string."""
    if draw.chance(0.2):
        count = draw.between(1, 9)
        query = f"k={count}" + draw.pick(("", "&timeout_ms=60000", "&x=y", "&"))
        return ask(
            f"/v1/classify/tiny?{query}", _PNG, statuses=frozenset({200}), checks=(lambda answer: _wrong(answer, world, count),)
        )
    pairs = [_pair(draw) for _ in range(draw.between(0, 5))]
    query = draw.pick(("&", "&", "&", ";", "&&", "&amp;")).join(pairs)
    if draw.chance(0.3):
        query = draw.damage(query.encode(), (b"%", b"&", b"=", b"+", b"%zz", b"%00", b"#", b"?", b"%ed%a0%80")).decode(
            "latin-1"
        )
        query = "".join(character if "!" <= character <= "~" else quote(character, safe="") for character in query)
    return ask(f"/v1/classify/{draw.pick(('tiny', 'tiny', 'tiny_classify', 'tiny_decode', 'nope'))}?{query}", _PNG)


def _pair(draw: Draw) -> str:
    name = draw.pick(
        ("k", "k", "K", "timeout_ms", "timeout_ms", "timeout", "model", "version", "request", "k[]", "", draw.text())
    )
    value = draw.pick((*_VALUES, draw.text(), str(draw.number())))
    return "=".join(quote(part, safe="", errors="surrogatepass") for part in draw.pick(((name, value), (name, value), (name,))))


def _wrong(answer: Answer, world: World, count: int) -> str | None:
    scores = world.of_image(_PNG)
    assert scores is not None
    return wrong_predictions(strict_json(answer.body), scores, count, 1e-4)
