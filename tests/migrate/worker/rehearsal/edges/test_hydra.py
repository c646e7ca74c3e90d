"""Options of Hydra's plugins that are not installed, and those that a user is to choose."""

import pytest

from headrace.migrate.worker.rehearsal.edges import hydra as edge

MAIN = """
import hydra

@hydra.main(version_base=None, config_path="conf", config_name="config")
def main(config):
    print(config.lr)

main()
"""


@pytest.mark.parametrize(
    ("text", "learned"),
    [
        ("In 'hydra/config': Could not find 'hydra/job_logging/colorlog'", [["hydra/job_logging", "colorlog"]]),
        ("In 'hydra/config': Could not find 'hydra/sweeper/optuna'\n\nAvailable options", [["hydra/sweeper", "optuna"]]),
        ("In 'config': Could not find 'model/resnet'", None),
        ("Could not find 'hydra/env/mine'", None),
    ],
)
def test_only_an_option_that_changes_no_result_is_learned(on_stage, text, learned):
    world = on_stage(edge)
    assert edge.lesson(world.stage, Exception(text)) is (learned is not None)
    assert world.stage.learned.get("hydra_options") == learned


def test_hydras_own_option_stands_in_for_a_plugins(rehearsed):
    pytest.importorskip("hydra")
    options = ("job_logging: colorlog", "launcher: submitit_slurm")
    text = "".join(f"  - override hydra/{option}\n" for option in options)
    done = rehearsed({"main.py": MAIN, "conf/config.yaml": f"defaults:\n  - _self_\n{text}lr: 0.5\n"})
    assert (done.report.ended, done.stdout) == ("finished", "0.5\n"), done.report.why
    assert [item.what for item in done.standins("hydra")] == [
        "the plugin that has hydra/job_logging/colorlog is not installed; Hydra's own stood in",
        "the plugin that has hydra/launcher/submitit_slurm is not installed; Hydra's own stood in",
    ]


def test_of_an_option_that_the_user_is_to_choose_the_first_is_taken(rehearsed, tmp_path):
    pytest.importorskip("hydra")
    files = {
        "main.py": MAIN.replace("config.lr", "config.net.name, config.data.root.side"),
        "conf/config.yaml": "defaults:\n  - _self_\n  - net: ???\n  - data/root: ???\n",
        "conf/net/large.yaml": "name: large\n",
        "conf/net/small.yaml": "name: small\n",
        "conf/data/root/here.yaml": "side: 8\n",
    }
    done = rehearsed(files)
    assert (done.report.ended, done.stdout) == ("finished", "large 8\n"), done.report.why
    assert [item.what for item in done.standins("arguments")] == ["'data/root=here' was guessed", "'net=large' was guessed"]
    done = rehearsed(files, "net=small", made=tmp_path / "again")
    assert (done.report.ended, done.stdout) == ("finished", "small 8\n"), done.report.why
