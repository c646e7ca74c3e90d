from headrace.migrate.worker.rehearsal.request_bodies import bodies


def test_the_forms_of_which_the_sources_speak_come_first(on_stage, tmp_path):
    world = on_stage()
    names = [body.name for body in bodies(world.stage)]
    assert names[0] == "image"
    assert "file image" in names
