import sys

import pytest

from headrace.migrate.worker.rehearsal.edges import libraries


def test_trackers_are_silent_and_keep_what_they_are_told_of_the_configuration(on_stage):
    world = on_stage(libraries)
    names = world.play(
        "import wandb\nfrom tensorboardX import SummaryWriter\nfrom thop import profile\n"
        "run = wandb.init(project='x', config={'lr': 0.1})\nwandb.log({'loss': 1})\nwandb.config.update({'size': 2})\n"
        "rate, size = wandb.config.lr, run.config['size']\n"
        "with SummaryWriter('runs') as writer:\n    writer.add_scalar('x', 1)\n"
        "flops, params = profile(None, inputs=())\ntext = f'{flops / 1e9:.2f}'\n"
    )
    assert (names["rate"], names["size"], names["text"]) == (0.1, 2, "0.00")
    assert "wandb is not installed; a silent stub stood in" in world.said("libraries")


def test_nothing_of_it_is_left(on_stage):
    world = on_stage()
    with libraries.stand_in(world.stage):
        world.play("import wandb\n")
    assert "wandb" not in sys.modules
    with pytest.raises(ModuleNotFoundError):
        world.play("import wandb\n")


def test_apex_is_torch(on_stage):
    names = on_stage(libraries).play(
        "import torch\nfrom apex import amp\nfrom apex.parallel import DistributedDataParallel as DDP, convert_syncbn_model\n"
        "net = torch.nn.Linear(2, 1)\noptimizer = torch.optim.SGD(net.parameters(), lr=0.1)\n"
        "net, optimizer = amp.initialize(net, optimizer, opt_level='O1')\nnet = DDP(convert_syncbn_model(net))\n"
        "loss = net(torch.ones(1, 2)).sum()\nwith amp.scale_loss(loss, optimizer) as scaled:\n"
        "    scaled.backward()\noptimizer.step()\n"
    )
    assert names["net"].module.weight.grad is not None


def test_another_library_is_imported_and_not_used(rehearsed):
    done = rehearsed({"main.py": "import nobody_has_this\nprint('on')\n"})
    assert (done.report.ended, done.stdout) == ("finished", "on\n")
    assert "nobody_has_this is not installed" in done.standins("libraries")[0].what
    used = rehearsed({"main.py": "import nobody_has_this\nnobody_has_this.run()\n"})
    assert used.report.ended == "stopped"
    assert used.report.remedy == "install nobody_has_this into the environment in which headrace runs"
