"""Hydra: `@hydra.main(config_path=..., config_name=...)` gives a function its configuration; no call in the source does."""

import ast

from ..reading.scopes import Function, dotted

_COMPOSE = """(
    __import__("hydra").initialize_config_dir(
        version_base=None, config_dir=__import__("os").path.join(__import__("os").path.dirname(__file__), {folder!r})
    ),
    __import__("hydra").compose({name!r}, overrides=__import__("sys").argv[1:]),
)[1]"""


def composed(function: Function, parameter: str) -> dict[str, ast.expr]:
    """The expression that composes what Hydra hands to the function's parameter; empty where it is none of Hydra's."""
    for decorator in function.decorator_list:
        if isinstance(decorator, ast.Call) and (dotted(decorator.func) or "") in ("hydra.main", "main"):
            given = dict(zip(("config_path", "config_name"), decorator.args, strict=False))
            given |= {keyword.arg: keyword.value for keyword in decorator.keywords if keyword.arg is not None}
            folder, name = given.get("config_path"), given.get("config_name")
            if isinstance(folder, ast.Constant) and isinstance(name, ast.Constant) and isinstance(folder.value, str):
                text = _COMPOSE.format(folder=folder.value, name=str(name.value).removesuffix(".yaml"))
                return {parameter: ast.parse(text, mode="eval").body}
    return {}
