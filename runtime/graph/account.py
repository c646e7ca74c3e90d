"""Whether a graph is worth its price: what eager calls of one kind of batch took so far, and what a graph takes."""

from __future__ import annotations

from dataclasses import dataclass, field

_GAIN = 0.03  # share of the eager time that a graph must save, to be made again
_TIMED = 16  # calls of each kind, after the weights changed
_SURE = 3  # calls of each kind that tell which one is faster
_CLEARLY = 0.8  # times as long as eager
# Nobody knows how many calls will come. What has been spent ten times over is at most a tenth of the whole time wasted (ski
# rental with a bound of 1.1, Karlin et al. 1988, doi:10.1007/BF01762111); at once would be twice the better choice's time.
TIMES = 10.0

_MOST_ROWS = {"cpu": 16, "cuda": 128}  # more are run in parts, which costs a CPU nothing


def own_bucket(rows: int, device: str) -> int:
    """The batch size that a call with so many rows is planned for."""
    return min(rows, _MOST_ROWS[device])


@dataclass
class Account:
    """What is known of one kind of batch. Times are seconds per row."""

    cost: float  # seconds of the latest compilation, or what one is taken to cost on a machine that does nothing else
    compiled: bool = False
    eager: float = 0.0
    graph: float | None = None
    rows: int = 0  # since the weights changed
    rows_before: int = 0  # of the evaluation before
    calls: int = 0  # of a packaged model, since then
    answered: int = 0  # rows in those
    compared: int = 0  # of these rows, what the module answered as well
    timed: list[int] = field(default_factory=lambda: [0, 0])  # calls timed since then, of the module and of the graph

    def wants_time(self, graph: bool) -> bool:
        """Whether another call of that kind is to be timed."""
        return self.timed[graph] < _TIMED

    def note(self, graph: bool, seconds: float) -> None:
        """Keep the best time of each: what else the machine did in the others is not theirs."""
        self.timed[graph] += 1
        if graph:
            self.graph = seconds if self.graph is None else min(self.graph, seconds)
        else:
            self.eager = seconds if self.eager == 0.0 else min(self.eager, seconds)

    def begin(self) -> None:
        """The weights have changed."""
        self.rows, self.rows_before, self.timed = 0, self.rows, [0, 0]
        self.calls = self.answered = self.compared = 0

    def compared_first(self, rows: int) -> None:
        """The module has answered these rows beside a packaged model when that was found, which was its 1st call."""
        self.calls, self.answered, self.compared = self.calls + 1, self.answered + rows, self.compared + rows

    def compares(self, rows: int) -> bool:
        """Whether the module answers these rows of a packaged model's call, too: at its 1st, 2nd, 4th, 8th... call, unless that
        would take more than the packaged model has saved, and a tenth."""
        self.calls += 1
        self.answered += rows
        if self.calls & (self.calls - 1):
            return False
        saved = max(0.0, self.eager - (self.eager if self.graph is None else self.graph))
        if self.eager * (self.compared + rows) > (saved + self.eager / TIMES) * self.answered:
            return False
        self.compared += rows
        return True

    @property
    def spent(self) -> float:
        """Seconds in eager calls since the weights changed."""
        return self.eager * self.rows

    @property
    def gain(self) -> float:
        """The share of the eager time that the graph saves; all of it, as long as nobody knows."""
        if self.graph is None or self.eager == 0.0:
            return 1.0
        gain = 1 - self.graph / self.eager
        return gain if gain >= _GAIN else 0.0

    @property
    def eager_next(self) -> bool:
        """Whether the graph has been seen to be slower than eager, or not to be clearly faster than few eager calls.

        The first of those are slow, so that more must tell.
        """
        calls, graph_calls = self.timed
        if graph_calls < _SURE or not calls or self.graph is None:
            return False
        return self.graph > (self.eager if calls >= _SURE else _CLEARLY * self.eager)

    def pays(self, stretch: float = 1.0) -> bool:
        """Whether the evaluation before was long enough to pay for a graph, or this one is, already ten times over.

        `stretch` is how many times as long all takes here as on a machine that does nothing else.
        """
        cost = self.cost if self.compiled else self.cost * stretch
        return self.gain > 0 and max(self.spent / TIMES, self.eager * self.rows_before) * self.gain >= cost
