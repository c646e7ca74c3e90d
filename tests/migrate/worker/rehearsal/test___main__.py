from headrace.migrate.worker.rehearsal.__main__ import main


def test_a_request_is_needed(capsys):
    assert main([]) == 2
    assert "REQUEST.json" in capsys.readouterr().err
