"""A result of a load as tests of reports need it."""

from headrace.serving.bench.load.load import LoadResult


def load(rate, answers=()):
    return LoadResult(
        seconds=1.0,
        sent=10,
        completed=10,
        samples=10,
        requests_per_second=rate,
        latency_ms={"p50": 1.0, "p99": 2.0},
        histogram={},
        errors={},
        error_examples={},
        answers=answers,
        client_cpu_us_per_request=1.0,
    )
