"""Files that import others, however far away."""

from collections.abc import Callable, Iterator

from ..reading.scopes import Module, Repository


def leading_to(repository: Repository, *wanted: Callable[[Module], bool]) -> Iterator[set[str]]:
    """For each of `wanted`: the files for which it holds, and those that import one of them or of these."""
    leads: dict[str, set[str]] = {}
    for module in repository.modules.values():
        names = {*module.imports.values(), *module.star_imports}
        for part in {part for name in names for part in (name, name.rpartition(".")[0]) if part}:
            if (other := repository.module(part, module.path)) is not None:
                leads.setdefault(other.path, set()).add(module.path)
    for holds in wanted:
        found = {module.path for module in repository.modules.values() if holds(module)}
        queue = list(found)
        while queue:
            new = leads.get(queue.pop(), set()) - found
            found |= new
            queue += new
        yield found
