"""The simulation against what queueing theory says of servers that it can say something of."""

import math
import random

import pytest

from tests.benchmarks.scale.balancer import Balancer, Balancing
from tests.benchmarks.scale.cores import Cores
from tests.benchmarks.scale.model import SHARES, Distribution, ServerSpec, Speeds, constant
from tests.benchmarks.scale.server import Server
from tests.benchmarks.scale.simulation import Cluster, closed, opened
from tests.benchmarks.simulation.clock import Clock
from tests.benchmarks.simulation.engine import Workers
from tests.benchmarks.simulation.traffic import poisson

REQUESTS = 30_000


def only_batches(distribution):
    """A device that runs one request at a time, and nothing beside it."""
    return ServerSpec(
        speeds=Speeds.ideal(1), batch={1: distribution}, decode=constant(0.0), handling=0.0, max_queue=10**6, gpu=True
    )


def each_at(clock, moments, happen):
    """Call `happen` at each of those moments."""
    for moment in moments:
        clock.at(moment, happen)


def mean_wait(spec, rate, service):
    arrivals = poisson(rate, REQUESTS / rate, seed=5)
    result = opened(Cluster(spec=spec), arrivals)
    assert result.outcomes == {"answered": len(arrivals)}
    return sum(one.finished - one.due for one in result.records) / len(arrivals) - service


def second_moment(distribution):
    """Of a value that is uniform between neighboring quantiles."""
    total = 0.0
    for place in range(len(SHARES) - 1):
        low, high = distribution.quantiles[place : place + 2]
        total += (SHARES[place + 1] - SHARES[place]) * (low * low + low * high + high * high) / 3
    return total


@pytest.mark.slow  # M/G/1, of which this is a case: below
@pytest.mark.parametrize("load", [0.3, 0.6, 0.8])
def test_m_d_1(load):
    """Mean wait rho * S / (2 * (1 - rho)): Pollaczek and Khinchine."""
    service = 0.01
    expected = load * service / (2 * (1 - load))
    assert mean_wait(only_batches(constant(service)), load / service, service) == pytest.approx(expected, rel=0.08)


@pytest.mark.parametrize("load", [pytest.param(0.5, marks=pytest.mark.slow), 0.8])
def test_m_g_1(load):
    """Mean wait rate * E[S^2] / (2 * (1 - rho)), for service times that vary as much as exponential ones nearly do."""
    quantiles = [-0.01 * math.log(1 - min(share, 0.999)) for share in SHARES]
    service = Distribution(tuple(quantiles))
    rate = load / service.mean
    expected = rate * second_moment(service) / (2 * (1 - load))
    assert mean_wait(only_batches(service), rate, service.mean) == pytest.approx(expected, rel=0.1)


@pytest.mark.parametrize(
    ("threads", "load"), [*(pytest.param(*one, marks=pytest.mark.slow) for one in ((1, 0.7), (4, 0.8))), (16, 0.8)]
)
def test_m_m_c(threads, load):
    """Erlang's C for a pool of threads with a core each: mean wait C / (c * mu - lambda)."""
    service = 0.01
    rate = threads * load / service
    offered = threads * load
    waiting = offered**threads / math.factorial(threads) / (1 - load)
    wait_probability = waiting / (sum(offered**count / math.factorial(count) for count in range(threads)) + waiting)
    expected = wait_probability / (threads / service - rate)
    clock, source = Clock(), random.Random(2)
    pool = Workers(Cores(clock, Speeds.ideal(threads)).thread, threads)
    spent = []

    def request():
        begin, own = clock.now, source.expovariate(1 / service)
        pool.run(lambda: own, lambda: spent.append(clock.now - begin - own))

    each_at(clock, poisson(rate, 2 * REQUESTS / rate, seed=1), request)
    clock.run()
    assert sum(spent) / len(spent) == pytest.approx(expected, rel=0.12)


def test_processor_sharing():
    """One core shared by all who come: mean time S / (1 - rho), whatever the distribution (Kleinrock 1976, volume 2, 4.4)."""
    service, load = 0.01, 0.7
    clock, source = Clock(), random.Random(4)
    cores = Cores(clock, Speeds.ideal(1))
    spent = []

    def request():
        begin = clock.now
        cores.thread(source.choice((0.2, 1.8)) * service, lambda: spent.append(clock.now - begin))

    each_at(clock, poisson(load / service, REQUESTS * service / load, seed=3), request)
    clock.run()
    assert sum(spent) / len(spent) == pytest.approx(service / (1 - load), rel=0.06)
    assert cores.busy == pytest.approx(len(spent) * service, rel=0.02)


def test_a_batch_and_threads_share_the_cores():
    """On two cores a thread beside a batch: three threads, each gets two thirds, and the rest is the batch's alone."""
    clock = Clock()
    cores = Cores(clock, Speeds.ideal(2))
    ended = {}
    cores.thread(0.02, lambda: ended.setdefault("thread", clock.now))
    cores.batch(0.03, lambda: ended.setdefault("batch", clock.now))
    clock.run()
    assert ended["thread"] == pytest.approx(0.03)
    assert ended["batch"] == pytest.approx(0.03 + 0.01)


def test_littles_law(spec):
    """As many are there on average as come per second times how long they stay, seen by somebody who looks now and then."""
    clock = Clock()
    balancer = Balancer(clock, [Server(clock, spec, random.Random(0))], Balancing())
    rate, seconds = 120.0, 60.0
    there, spent, seen = set(), [], []

    def request():
        begin, one = clock.now, object()
        there.add(one)

        def answered(outcome):
            there.remove(one)
            spent.append(clock.now - begin)

        balancer.send(math.inf, answered)

    each_at(clock, poisson(rate, seconds, seed=8), request)
    each_at(clock, [0.0137 * look for look in range(1, math.ceil(seconds / 0.0137) + 1)], lambda: seen.append(len(there)))
    clock.run()
    assert sum(seen) / len(seen) == pytest.approx(len(spent) / seconds * sum(spent) / len(spent), rel=0.05)


def test_a_closed_loop_of_one_takes_the_sum_of_its_stages(spec):
    result = closed(Cluster(spec=spec, client=0.0002), connections=1, seconds=5.0)
    each = spec.handing_over + spec.handling + 0.002 + 0.005 + 0.0002
    assert result.latency(0.5) == pytest.approx(each)
    assert result.rate == pytest.approx(1 / each, rel=0.01)


def test_a_closed_loop_of_many_is_limited_by_the_cores(spec):
    """No faster than the cores allow, and near that: the work of a request over both cores, its batch of 8 being on both."""
    result = closed(Cluster(spec=spec, client=0.0002), connections=32, seconds=10.0)
    bound = 1 / ((0.0002 + spec.handling + 0.002) / 2 + 0.026 / 8)
    assert 0.9 * bound <= result.rate <= 1.01 * bound
    assert result.latency(0.5) == pytest.approx(32 / result.rate, rel=0.1)  # Little again
