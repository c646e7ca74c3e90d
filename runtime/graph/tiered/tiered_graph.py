"""A module's graph that is never in the way: the module itself answers until a graph pays, and a packaged one comes first."""

from __future__ import annotations

import contextlib
import operator
import os
import threading
import time
from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.utils.hooks import RemovableHandle

from ....errors import CaptureError, HeadraceError, InputError
from ...base.config import GraphConfig
from ...base.lock import LOCK
from ...capture.no_grad_mode import no_grad_mode
from ...inspect.journal import Journal
from ...inspect.recompiles import kinds_of
from ..account import TIMES, Account, own_bucket
from ..checks import check_tensors
from ..loaded import LoadedGraph
from ..observers import observers
from ..packaged import RARE_ROWS, find_packaged, otherwise, packages_of
from ..watch import Watch
from .constants import call_key, in_order, tensors, with_constants
from .seen import Seen, trains

if TYPE_CHECKING:
    from ..graph import ModuleGraph

_PATIENCE = 10.0  # seconds; about what the capture and the plan of a ResNet-50 take on two cores
_IN_PLACE = "computes in place of its input, which the script may read afterwards (x = x.clone() before that keeps it)"
_MOST_CONSTANTS = 8  # choices of constants that have graphs of their own
_OPENING = 1.0  # seconds; about what opening a packaged model takes


class TieredGraph:
    """The graph of one module, made when it pays.

    Calls are answered by the module itself, in evaluation mode and without gradients, until it has taken a second; then a
    packaged model with the same weights is looked for (`find_packaged`), compared with the module and used, and compared again
    at its 2nd, 4th, 8th... call of each kind, as far as that costs no more than it saves, and a tenth. Where there is
    none, the graph is captured once the module has taken ten times as long as that costs. What is seen to be slower than the
    module is not used. So no script takes much longer than without it: a tenth, and a second. Threads call the module side by
    side, and a graph one after the other. After weights changed, all of this begins anew. `patience` is what a capture is taken
    to cost before the first one on a machine that does nothing else, in seconds (default: $HEADRACE_PATIENCE, else 10); 0 opens
    or captures at the first call.

    A module that cannot be captured stays eager, with one warning; with patience 0 that raises CaptureError, as for any graph,
    unless it is TorchScript, which is a graph already and answers itself.
    So does one, while that lasts, at whose layers a hook of the script's looks on (`observers`), or of which a part is in
    training mode while the whole is in evaluation mode; and one whose calls keep tensors in attributes that no module reads, or
    change their inputs.
    Constants beside the tensors, as in `graph(images, temperature=1.5)`, are part of the graph: each of the first eight choices
    of them has one of its own. What is called with more than tensors and constants answers itself.
    `eager` is called instead of the module, where that runs in a wrapper. What else a graph does (`compile`, `save`, `debug`,
    `plan`) is done by the `graph` behind it, for which `compile` does not wait.
    """

    def __init__(
        self,
        model: nn.Module,
        *,
        config: GraphConfig | None = None,
        patience: float | None = None,
        eager: nn.Module | None = None,
    ) -> None:
        self.model = model
        self.patience = default_patience() if patience is None else patience
        if not self.patience >= 0:
            raise ValueError(f"patience must be seconds, 0 or more, got {self.patience!r}")
        self.refused: str | None = None
        self.packaged: LoadedGraph | None = None
        self._config = config
        self._graph: ModuleGraph | None = None
        self._call_eagerly = (eager or model).__call__  # a method, since a wrapper as an attribute would be captured, too
        self._accounts: dict[Hashable, Account] = {}
        self._with_constants: dict[Hashable, TieredGraph] = {}
        self._side_by_side = 0  # calls of the module that are timed at this moment
        self._least_stretch = float("inf")
        self._watched: Watch | None = None
        self._seen = Seen(model)
        self._hooks = -1  # how many there had been in the process when it was last looked whether one looks on here
        self._observed = False
        self._writes = False  # whether calls have changed their inputs
        self._mixed = False  # whether it was told that parts of it train
        self._looked = False
        self._put_off = False  # packages of another program, with the same weights
        self._lock = threading.RLock()
        self._journal = Journal(type(model).__name__)

    @property
    def graph(self) -> ModuleGraph:
        """The graph behind it; a script that stays eager does not pay for the import of what captures."""
        with self._lock:
            if self._graph is None:
                from ..graph import ModuleGraph

                self._graph = ModuleGraph(self.model, config=self._config)
            return self._graph

    @property
    def captures(self) -> int:
        """How often the module was captured."""
        own = 0 if self._graph is None else self._graph.captures
        return own + sum(graph.captures for graph in set(self._with_constants.values()))

    @property
    def answering(self) -> list[TieredGraph]:
        """This one and those of its calls with constants, as far as something else than the module has answered."""
        own = self.packaged is not None or (self._graph is not None and self._graph.captures > 0)
        return [
            *([self] if own else []),
            *(one for graph in dict.fromkeys(self._with_constants.values()) for one in graph.answering),
        ]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self.graph, name)

    def __call__(self, *inputs: Any, **named: Any) -> Any:
        """What the module returns for these inputs, from whatever answers soonest; without gradients.

        Raises what the module raises, and InputError when the first input is no tensor, or one has no rows.
        """
        if not (plain := _all_tensors(inputs, named)):
            given, key = tensors(inputs, named), call_key(inputs, named)
            if (graph := self._with_constants.get(key)) is not None:
                return graph(*given)
            inputs, named = in_order(self.model.forward, inputs, named)
            plain = _all_tensors(inputs, named)
            check_tensors(inputs[:1])
            if not plain and (graph := self._with(inputs, named)) is not None:
                if all(map(operator.is_, given, tensors(inputs, named))):  # so it need not be put in order again
                    self._with_constants[key] = graph
                return graph(*tensors(inputs, named))
        if plain:
            check_tensors(inputs)
        with self._lock:
            if self._seen.lazy:  # its first call gives it its tensors
                outputs, self._seen = self._eagerly(*inputs, **named), Seen(self.model)
                return outputs
            observed = self._is_observed()
            mixed = not observed and self._seen.trains_inside()
            account = self._account(inputs) if plain and not observed and not mixed else None
            if account is not None:
                if (answered := self._by_a_graph(account, inputs)) is not None:
                    return answered
                account.rows += len(inputs[0])
        # Threads, as a server has them, call the module side by side, as they did in the script as it was.
        if mixed:
            return self._as_it_is(*inputs, **named)
        return self._eagerly(*inputs, **named) if account is None else self._timed(account, False, self._eagerly, *inputs)

    def debug(self, level: int = 1) -> TieredGraph:
        """As `Graph.debug`."""
        self._journal.set(level)
        self.graph.debug(level)
        return self

    def compile(self, *example_inputs: torch.Tensor, **options: Any) -> TieredGraph:
        """As `Graph.compile`: capture and tune now. Calls with other inputs are captured at once from then on."""
        with self._lock:
            self.patience = 0.0
            self._close_packaged()
            self.graph.compile(*example_inputs, **options)
            return self

    def refuse(self, error: HeadraceError) -> None:
        """Leave it to the module from now on, and warn once."""
        self.refused = str(error)
        self._journal.warn(f"stays eager: {error}")

    def __repr__(self) -> str:
        name = type(self.model).__name__
        if self.packaged is not None:
            return f"TieredGraph({name}, packaged with the same weights: {self.packaged.artifact.path})"
        if self.captures:
            return repr(self.graph)
        return f"TieredGraph({name}, eager{f': {self.refused}' if self.refused else ' until a graph pays'})"

    def __reduce__(self) -> Any:
        """A copy, or what a pickle becomes, is a graph of its own of the model's copy."""
        return _anew, (self._call_eagerly.__self__, self.model, self._config, self.patience)

    def _with(self, args: tuple[Any, ...], named: dict[str, Any]) -> TieredGraph | None:
        """The graph of calls with these constants; None where there are none, or too many others."""
        key = call_key(args, named)
        if key is None or not tensors(args, named) or self._seen.lazy:
            return None
        with self._lock:
            graph = self._with_constants.get(key)
            if graph is None and len(set(self._with_constants.values())) < _MOST_CONSTANTS:
                called, model = (with_constants(module, args, named) for module in (self._call_eagerly.__self__, self.model))
                graph = TieredGraph(model, config=self._config, patience=self.patience, eager=called)
                self._with_constants[key] = graph
            return graph

    def _by_a_graph(self, account: Account, inputs: tuple[torch.Tensor, ...]) -> Any:
        """What a graph answers, or the module where it is compared with one; None where the module is to answer."""
        if self._writes and self.refused is not None:
            return None
        if not account.eager_next and self._graph is not None and self._graph.ready(*inputs):  # it sees changes itself
            return self._timed(account, True, self._graph, *inputs)
        self._notice_changes(thoroughly=self.packaged is not None or self._may_look() or account.pays(self._stretch))
        if self.refused is not None or account.eager_next or self._keeps_for_others(account, inputs):
            return None
        if self._may_look() and (answered := self._look_for_packaged(account, inputs)) is not None:
            return answered
        if self.packaged is not None and self._takes(self.packaged, inputs):
            return self._by_packaged(self.packaged, account, inputs)
        return self._capture(account, inputs) if account.pays(self._stretch) else None

    def _timed(self, account: Account, graph: bool, run: Any, *inputs: torch.Tensor) -> Any:
        """Run, and note the time of the first calls; of the module's that run side by side, the share of each."""
        if not account.wants_time(graph):
            return run(*inputs)
        with self._lock:
            self._side_by_side += not graph
            beside = self._side_by_side
        begin, worked = time.perf_counter(), time.thread_time()
        try:
            outputs = run(*inputs)
            if inputs[0].is_cuda:  # waiting for it costs the overlap with loading data, hence only a few calls are timed
                torch.cuda.synchronize(inputs[0].device)
            seconds, worked = time.perf_counter() - begin, time.thread_time() - worked
        finally:
            with self._lock:
                beside = min(beside, self._side_by_side)
                self._side_by_side -= not graph
        with self._lock:
            account.note(graph, seconds / (1 if graph else beside) / len(inputs[0]))
            if not graph and worked > 0 and not inputs[0].is_cuda:
                self._least_stretch = min(self._least_stretch, seconds / worked)
        return outputs

    @property
    def _stretch(self) -> float:
        """How many times as long as its work a call takes, where other programs or a quota leave this one a part of a core."""
        return max(1.0, self._least_stretch) if self._least_stretch < float("inf") else 1.0

    def _eagerly(self, *inputs: Any, **named: Any) -> Any:
        """The module as it is called, but not while another graph captures, since torch would trace this, too.

        An autocast around the call is the caller's.
        """
        modules, before = self._seen.modules, _versions(inputs)
        try:
            with torch.no_grad():
                with LOCK.beside():
                    if not any(map(trains, modules)):
                        return self._call_eagerly(*inputs, **named)
                with LOCK, _evaluating(modules):  # whose modes other threads' calls would see
                    return self._call_eagerly(*inputs, **named)
        finally:
            self._writes = self._writes or before != _versions(inputs)

    def _as_it_is(self, *inputs: Any, **named: Any) -> Any:
        """The module in the modes that its parts are in."""
        if not self._mixed:
            self._mixed = True
            self._journal.warn(
                "parts of it are in training mode while it is in evaluation mode: the module answers while they are"
            )
        with LOCK.beside(), torch.no_grad():
            return self._call_eagerly(*inputs, **named)

    def _keeps_for_others(self, account: Account, inputs: tuple[torch.Tensor, ...]) -> bool:
        """Whether calls leave something that the script may read, in an attribute or in their inputs, which no graph's call
        does; then the module answers from now on."""
        if not (self.packaged is not None or self._may_look() or account.pays(self._stretch)):
            return False
        if not self._has_spent(1e-9) and self._seen.sets_for_others():
            self._eagerly(*inputs)  # so that there is what a call leaves
        if (name := self._seen.kept_for_others()) is not None:
            self._leave(f"keeps tensors in {name!r}, which no module reads")
        elif self._writes:
            self._leave(_IN_PLACE)
        return self.refused is not None

    def _leave(self, what: str) -> None:
        self.refuse(CaptureError(f"forward {what}; a graph's call would leave it as it is"))

    def _is_observed(self) -> bool:
        if self._observed or self._hooks != RemovableHandle.next_id:
            before, self._hooks = self._observed, RemovableHandle.next_id
            self._observed = any(True for _ in observers(self._seen.modules))
            if self._observed and not before:
                self._journal.report(1, "a hook of the script's looks on at its layers: the module answers while it does")
        return self._observed

    @property
    def evaluates(self) -> bool:
        """Whether the module and all in it are in evaluation mode."""
        return not any(trains(module) for module in self._seen.modules)

    @property
    def noticed(self) -> bool:
        """Whether the next call sees by itself that something has changed since it was last looked."""
        return self._watched is not None and (self._seen.changed() or self._watched.changed())

    def _notice_changes(self, *, thoroughly: bool) -> None:
        """Begin anew where something has changed."""
        if self._watched is not None and not self._seen.changed() and not (thoroughly and self._watched.changed()):
            return
        self._watched, self._seen, self._looked, self._put_off = Watch(self), Seen(self.model), False, False
        self._close_packaged()
        for account in self._accounts.values():
            account.begin()

    def _account(self, inputs: tuple[torch.Tensor, ...]) -> Account:
        key = (kinds_of(inputs), own_bucket(len(inputs[0]), inputs[0].device.type))
        return self._accounts.setdefault(key, Account(cost=self.patience))

    def _close_packaged(self) -> None:
        if self.packaged is not None:
            self.packaged.close()
            self.packaged = None

    @staticmethod
    def _takes(packaged: LoadedGraph, inputs: tuple[torch.Tensor, ...]) -> bool:
        wanted = [(spec.row_shape, spec.dtype) for spec in packaged.signature.inputs]
        return wanted == [(tuple(value.shape[1:]), str(value.dtype).removeprefix("torch.")) for value in inputs]

    def _may_look(self) -> bool:
        if self._looked or self._config is not None:
            return False
        return self.patience == 0 or self._has_spent(self._comparing if self._put_off else _OPENING * self._stretch)

    def _has_spent(self, seconds: float) -> bool:
        """Whether the module's own calls took so long since its weights changed."""
        return sum(account.spent for account in self._accounts.values()) >= seconds

    @property
    def _comparing(self) -> float:
        """Seconds of calls that pay for comparing another program, which answers rare rows as the module does."""
        return max(_OPENING * self._stretch, TIMES * 2 * RARE_ROWS * max(account.eager for account in self._accounts.values()))

    def _look_for_packaged(self, account: Account, inputs: tuple[torch.Tensor, ...]) -> Any:
        """The module's own answer, where it has shown that a packaged model may be used from now on; else None."""

        def module(*given: torch.Tensor) -> Any:  # other batch sizes take another time per row
            return self._timed(account, False, self._eagerly, *given) if given[0] is inputs[0] else self._eagerly(*given)

        self._looked = True
        begin = time.perf_counter()
        packages = packages_of(self.model)
        if self.patience and not self._has_spent(self._comparing):
            own = [package for package in packages if package.same_program]
            self._put_off, packages = len(own) < len(packages), own
            self._looked = not self._put_off
        with no_grad_mode():
            found = find_packaged(packages, inputs, module, self._again, self._journal)
        if found is None:
            return None
        self.packaged, answered = found
        self._looked = True
        account.compared_first(len(inputs[0]))
        seconds = time.perf_counter() - begin
        self._journal.report(1, f"opened {self.packaged.artifact.path}, which has these weights, in {seconds:.2f} s")
        return answered

    def _by_packaged(self, packaged: LoadedGraph, account: Account, inputs: tuple[torch.Tensor, ...]) -> Any:
        """What the packaged model answers; now and then the module answers as well, which must be the same."""
        outputs = self._timed(account, True, packaged, *inputs)
        if not account.compares(len(inputs[0])):
            return outputs
        with no_grad_mode():
            wanted = self._eagerly(*inputs)
            try:
                why = otherwise(wanted, outputs, lambda: self._again(*inputs))
            except HeadraceError as error:
                why = str(error)
        if why is None:
            return outputs
        self._journal.warn(f"{packaged.artifact.path} holds a model with these weights, and is used no more: {why}")
        self._close_packaged()
        return wanted

    def _again(self, *inputs: torch.Tensor) -> Any:
        """The same in another layout, for which libraries have other kernels, where the module takes it."""
        others = [value.contiguous(memory_format=torch.channels_last) if value.ndim == 4 else value for value in inputs]
        try:
            return self._eagerly(*others)
        except RuntimeError:  # it views what only a contiguous input allows
            return self._eagerly(*inputs)

    def _capture(self, account: Account, inputs: tuple[torch.Tensor, ...]) -> Any:
        """What a graph that is captured now answers; None where the module cannot be captured."""
        begin = time.perf_counter()
        try:
            outputs = self.graph(*inputs)
        except HeadraceError as error:
            if self.patience == 0 and not isinstance(self.model, torch.jit.ScriptModule):
                raise
            self.refuse(error)
            return None
        account.cost, account.compiled = time.perf_counter() - begin, True
        latest = self.graph._latest
        if latest is not None and latest.captured.written:  # no call of the module has shown that yet
            self._writes = True
            self._leave(_IN_PLACE)
            return None
        return outputs


def _anew(eager: nn.Module, model: nn.Module, config: GraphConfig | None, patience: float) -> TieredGraph:
    return TieredGraph(model, config=config, patience=patience, eager=eager)


def default_patience() -> float:
    """The seconds of $HEADRACE_PATIENCE, else 10. Raises InputError where that is no number."""
    text = os.environ.get("HEADRACE_PATIENCE", "")
    try:
        return float(text) if text else _PATIENCE
    except ValueError as error:
        raise InputError(f"HEADRACE_PATIENCE must be a number of seconds, it is {text!r}") from error


@contextlib.contextmanager
def _evaluating(modules: Sequence[nn.Module]) -> Iterator[None]:
    """Evaluation mode within the block, as in a graph. The flags are set directly: a module's own `eval()` may do more."""
    training = [module for module in modules if trains(module)]
    for module in training:
        module.training = False
    try:
        yield
    finally:
        for module in training:
            module.training = True


def _all_tensors(args: Sequence[Any], named: Mapping[str, Any]) -> bool:
    """Whether a call is one of tensors by place, and nothing else."""
    return not named and bool(args) and all(isinstance(value, torch.Tensor) for value in args)


def _versions(inputs: Sequence[Any]) -> list[int]:
    """How often each was written to; those of an inference mode do not count that."""
    return [value._version for value in inputs if isinstance(value, torch.Tensor) and not value.is_inference()]
