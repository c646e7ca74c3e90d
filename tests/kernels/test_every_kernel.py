"""What holds for every kernel in the folder, found as the package finds them."""

import inspect
from pathlib import Path

import pytest
import torch

from headrace import kernels

ROOT = Path(__file__).parents[2]
OPERATORS = [
    pytest.param(name, operator, id=name)
    for kernel in kernels.discover().values()
    for name, operator in kernel.operators.items()
]


def tensors(value):
    return value if isinstance(value, tuple) else (value,)


def test_each_file_is_found_and_has_its_tests():
    names = {path.stem for path in (ROOT / "kernels").glob("[!_]*.py")}
    assert set(kernels.discover()) == names
    assert {f"test_{name}.py" for name in names} <= {path.name for path in Path(__file__).parent.glob("test_*.py")}


@pytest.mark.parametrize(("name", "operator"), OPERATORS)
def test_operators_are_registered_under_their_names_and_take_what_their_references_take(name, operator):
    assert getattr(torch.ops.headrace, name) is not None
    taken = [argument.name for argument in getattr(torch.ops.headrace, name).default._schema.arguments]
    assert list(inspect.signature(operator.reference).parameters) == taken


@pytest.mark.parametrize(("name", "operator"), OPERATORS)
def test_operators_pass_torchs_own_checks(name, operator, device):
    """Schema, no aliases, and a fake kernel that gives the shapes, strides and dtypes of the real one, for any batch."""
    torch.library.opcheck(operator.run, operator.example(device))


@pytest.mark.parametrize(("name", "operator"), OPERATORS)
def test_operators_agree_with_their_references(name, operator, device):
    arguments = operator.example(device)
    for got, wanted in zip(tensors(operator.run(*arguments)), tensors(operator.reference(*arguments)), strict=True):
        assert got.dtype == wanted.dtype
        if got.dtype.is_floating_point:
            torch.testing.assert_close(got, wanted, rtol=1e-5, atol=1e-5)
        else:
            assert (got.long() - wanted.long()).abs().max() <= (got.dtype != torch.int64)  # levels may round otherwise


@pytest.mark.parametrize(("name", "operator"), OPERATORS)
def test_export_captures_operators_with_a_dynamic_batch(name, operator, device):
    arguments = operator.example(device)
    places = [index for index, item in enumerate(arguments) if isinstance(item, torch.Tensor)]

    class Model(torch.nn.Module):
        def forward(self, *given):
            filled = [given[places.index(index)] if index in places else item for index, item in enumerate(arguments)]
            return tensors(operator.run(*filled))

    given = tuple(arguments[index] for index in places)
    dynamic = {"given": tuple({0: torch.export.Dim.AUTO} for _ in given)}
    program = torch.export.export(Model(), given, dynamic_shapes=dynamic)
    assert f"headrace.{name}.default" in [str(node.target) for node in program.graph.nodes if node.op == "call_function"]
    batch = next(node for node in program.graph.nodes if node.op == "placeholder").meta["val"].shape[0]
    assert isinstance(batch, torch.SymInt)
    for got, wanted in zip(program.module()(*given), tensors(operator.run(*arguments)), strict=True):
        torch.testing.assert_close(got, wanted, rtol=0, atol=0)


@pytest.mark.parametrize(("name", "operator"), OPERATORS)
def test_bytes_moved_count_what_is_written_and_no_less(name, operator):
    arguments = operator.example("cpu")
    written = sum(item.numel() * item.element_size() for item in tensors(operator.run(*arguments)))
    read = max(item.numel() * item.element_size() for item in arguments if isinstance(item, torch.Tensor))
    assert operator.bytes_moved(*arguments) >= written + read
