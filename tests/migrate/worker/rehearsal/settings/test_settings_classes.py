"""Fields of classes of settings that nobody set, and what a rehearsal sets for them."""

import enum
import typing

import pytest

from headrace.migrate.worker.rehearsal.settings import settings_classes

SETTINGS = """
from typing import List, Literal, Optional
from pydantic import AnyUrl, Field, SecretStr
from pydantic_settings import BaseSettings, SettingsConfigDict

class Settings(BaseSettings):
    model_config = SettingsConfigDict(env_prefix="APP_")
    data_root: str
    token: SecretStr
    rate_limit: int
    share: float
    debug: bool
    origins: List[str]
    mode: Literal["fast", "slow"]
    limits: Optional[List[int]]
    more: dict
    home: AnyUrl
    database_url: str = Field(alias="DATABASE_URL")
    title: str = "pets"

made = Settings()
print(made.data_root, made.debug, made.origins, made.mode, made.limits, made.database_url, made.title)
"""


def test_the_fields_of_a_class_of_settings_are_set_by_their_types(rehearsed):
    pytest.importorskip("pydantic_settings")
    done = rehearsed({"main.py": SETTINGS, ".env.example": "APP_MODE=slow\n"})
    assert (done.report.ended, done.report.attempts) == ("finished", 2), done.report.why
    assert done.stdout == "data False ['1'] slow [1] sqlite:// pets\n"
    said = [item.what for item in done.standins("arguments")]
    assert "APP_MODE=slow was taken from the example of its settings" in said
    assert "APP_DATA_ROOT=data was guessed" in said


def test_what_other_classes_miss_is_not_of_the_environment(rehearsed):
    pytest.importorskip("pydantic")
    done = rehearsed({"main.py": "from pydantic import BaseModel\nclass Answer(BaseModel):\n    label: str\nAnswer()\n"})
    assert done.report.ended == "stopped"
    assert not done.standins("arguments")


class Size(enum.Enum):
    SMALL = "small"


@pytest.mark.parametrize(
    ("kind", "name", "value"),
    [
        (Size, "SIZE", "small"),
        (bytes, "RAW", None),
        (typing.Any, "RATE", "1"),
        (str | None, "DB_URI", "sqlite://"),
        (tuple[int, ...], "SIDES", "[1]"),
        (type("PostgresDsn", (), {}), "WHERE", "postgresql://localhost/data"),
    ],
)
def test_a_value_is_one_of_the_fields_type(kind, name, value):
    assert settings_classes._value(kind, name, lambda _: "1") == value
