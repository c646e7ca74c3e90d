"""What may be taken beyond the models' first sessions."""

from headrace.serving.models.memory_bound import MIB, MemoryBound, resident_bytes


def bound(limit, resident, free=1000.0):
    return MemoryBound(limit, resident=lambda: resident[0], free=lambda: free)


def test_a_quarter_more_than_when_the_models_were_ready():
    resident = [200 * MIB]
    memory = bound(None, resident)
    memory.settle()
    assert memory.room() == 50 * MIB
    memory.keep(30 * MIB)
    resident[0] = 900 * MIB  # what requests take is not what sessions took
    assert memory.room() == 20 * MIB
    resident[0] = 330 * MIB  # another model came, of 100 MiB
    memory.settle()
    assert memory.room() == 75 * MIB - 30 * MIB
    memory.keep(-30 * MIB)
    assert memory.room() == 75 * MIB


def test_a_limit_counts_all_that_the_process_has():
    resident = [200 * MIB]
    memory = bound(300 * MIB, resident)
    memory.settle()
    assert memory.room() == 100 * MIB
    resident[0] = 350 * MIB
    assert memory.room() == -50 * MIB


def test_never_more_than_the_machine_has():
    assert bound(1 << 40, [200 * MIB], free=7.0).room() == 7 * MIB


def test_this_process_has_some():
    assert resident_bytes() > MIB
