"""What may be taken beyond the models' first sessions."""

from headrace.serving.models.memory_bound import MIB, MemoryBound, resident_bytes


def bound(limit, resident, free=(1000.0,)):
    return MemoryBound(limit, resident=lambda: resident[0], free=lambda: free[0])


def test_an_eighth_of_what_was_free_when_the_models_were_ready():
    resident, free = [200 * MIB], [1000.0]
    memory = bound(None, resident, free)
    assert memory.room() == 0
    memory.settle()
    assert memory.room() == 125 * MIB
    memory.keep(30 * MIB)
    resident[0] = 900 * MIB  # what requests take is not what sessions took
    assert memory.room() == 95 * MIB
    free[0] = 800.0  # another model came
    memory.settle()
    assert memory.room() == 100 * MIB
    memory.keep(-30 * MIB)
    assert memory.room() == 130 * MIB
    free[0] = 60.0
    assert memory.room() == 60 * MIB


def test_a_limit_counts_all_that_the_process_has():
    resident = [200 * MIB]
    memory = bound(300 * MIB, resident)
    memory.settle()
    assert memory.room() == 100 * MIB
    resident[0] = 350 * MIB
    assert memory.room() == -50 * MIB


def test_never_more_than_the_machine_has():
    assert bound(1 << 40, [200 * MIB], free=[7.0]).room() == 7 * MIB


def test_this_process_has_some():
    assert resident_bytes() > MIB
