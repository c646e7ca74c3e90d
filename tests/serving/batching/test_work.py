from headrace.serving.batching.work import _PRESSED, Work, Workload


def test_batches_and_rows_are_counted():
    workload = Workload()
    workload.begins(True)
    workload.begins(False)
    workload.ended(5)
    earlier = workload.done
    assert earlier == Work(rows=5, batches=2, pressed=1)
    workload.begins(True)
    workload.ended(3)
    assert workload.done.since(earlier) == Work(rows=3, batches=1, pressed=1)


def test_pressure_is_told_once_and_counted_anew():
    workload, told = Workload(), []
    workload.under_pressure(lambda: told.append(workload.done.batches))
    for number in range(2 * _PRESSED):  # as often waiting as found waiting: no pressure
        workload.begins(number % 2 == 0)
    assert told == []
    for _ in range(3 * _PRESSED):
        workload.begins(True)
    assert told == [3 * _PRESSED]
    workload.under_pressure(lambda: told.append(0))
    for _ in range(_PRESSED - 1):
        workload.begins(True)
    assert told == [3 * _PRESSED]
    workload.under_pressure(None)
    workload.begins(True)
    assert told == [3 * _PRESSED]
