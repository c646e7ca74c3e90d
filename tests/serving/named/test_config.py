"""The options of a model by its name."""

import inspect
from pathlib import Path

from headrace.migrate.cli import compile_
from headrace.serving.named.config import NamedModel


def test_what_plans_the_model_is_asked_for_the_same():
    asked = NamedModel(
        checkpoint=Path("a.pth"), random_weights=True, name="net", input_size="3,8,8", task="embedding", precision="fp32,bf16",
        images=Path("photos"), trust_remote_code=True,
    )  # fmt: skip
    arguments = asked.arguments()
    assert arguments[:2] == ["--checkpoint", "a.pth"]
    assert {"--random-weights", "--trust-remote-code"} <= set(arguments)
    assert "--trust-checkpoint" not in arguments
    known = {f"--{name.replace('_', '-')}" for name in inspect.signature(compile_).parameters}
    assert {argument for argument in arguments if argument.startswith("--")} <= known
