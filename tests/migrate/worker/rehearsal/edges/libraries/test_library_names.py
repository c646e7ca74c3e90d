from headrace.migrate.worker.rehearsal.edges.libraries import library_names, substitutes


def test_a_library_is_known_for_one_thing():
    kinds = {
        "silent": library_names.SILENT,
        "owns": library_names.OWNS,
        "others": library_names.OTHERS,
        "substitutes": substitutes.LIBRARIES,
    }
    names = [name for kind in kinds.values() for name in kind]
    assert sorted(names) == sorted(set(names))


def test_how_the_use_of_what_can_only_be_imported_is_told():
    import re

    assert re.search(library_names.USED, "nets is not installed, of which nets.load is used")[1] == "nets.load"
    assert re.search(library_names.USED, "torch.OldThing is not in the installed torch")[2] == "torch.OldThing"
