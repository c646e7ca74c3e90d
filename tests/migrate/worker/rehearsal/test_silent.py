"""Stand-ins for loggers and bars of progress, in whatever way they are used."""

import pytest


def test_a_silent_library_is_gone_through_awaited_and_entered(rehearsed):
    text = (
        "import asyncio\nfrom loguru import logger\nimport progress\n\n"
        "class Loader:\n    def __iter__(self):\n        return progress.bar()\n\n"
        "async def main():\n    async with logger.session() as session:\n        await session.send('x')\n"
        "    return [item async for item in logger.stream([1, 2])]\n\n"
        "print(len(list(Loader())), asyncio.run(main()), 'x' in logger, [1, 2][logger.level], logger.level % 3)\n"
        "del logger['x']\n"
    )
    done = rehearsed({"main.py": text})
    assert (done.report.ended, done.stdout) == ("finished", "2 [1, 2] False 1 0.0\n"), done.report.why


def test_what_is_told_of_a_model_is_as_many_numbers_as_it_is_taken_apart_into(rehearsed):
    text = (
        "import torch\nfrom thop import profile, clever_format\nnet = torch.nn.Linear(2, 2)\n"
        "operations, parameters = profile(net, (torch.rand(1, 2),), verbose=False)\n"
        "once, twice, thrice = profile(net, inputs=(torch.rand(1, 2),))\n"
        "both = list(profile(net, inputs=[torch.rand(1, 2)]))\n"
        "print(operations * 2, parameters, once + twice + thrice, both)\n"
        "print([number for number in profile([3, 4])])\n"
    )
    done = rehearsed({"main.py": text})
    assert (done.report.ended, done.stdout) == ("finished", "0.0 0.0 0.0 [0.0, 0.0]\n[3, 4]\n"), done.report.why


def test_what_a_tracker_gives_is_written_to_files_and_read_again(rehearsed):
    text = (
        "import io, json, mlflow, torch, yaml\nrun = mlflow.start_run().info.run_id\n"
        "file = io.BytesIO()\ntorch.save({'run': run, 'net': torch.nn.Linear(2, 2).state_dict()}, file)\nfile.seek(0)\n"
        "held = torch.load(file)\nmlflow.start_run(run_id=held['run'])\n"
        "print(sorted(held), json.dumps({'run': run}), yaml.safe_dump({'run': run}), yaml.dump({'run': run}))\n"
        "json.dumps(object())\n"
    )
    done = rehearsed({"main.py": text})
    assert done.stdout == "['net', 'run'] {\"run\": \"\"} run: ''\n run: ''\n\n", done.report.why
    assert "Object of type object is not JSON serializable" in done.report.why


@pytest.mark.parametrize(
    "given",
    ["net.parameters()", "params=list(net.parameters())", "[{'params': net.parameters()}]", "filter(bool, [net.weight])"],
)
def test_an_optimizer_of_a_missing_library_is_one_of_torchs(rehearsed, given):
    given = given.replace("filter(bool,", "filter(lambda item: item.requires_grad,")
    text = (
        "import torch\nfrom adamp import AdamP\nfrom torch_ema import ExponentialMovingAverage\nnet = torch.nn.Linear(2, 2)\n"
        f"optimizer = AdamP({given}, lr=0.25, betas=(0.9, 0.999))\n"
        "torch.optim.lr_scheduler.StepLR(optimizer, 3)\nnet(torch.ones(1, 2)).sum().backward()\nbefore = net.weight.clone()\n"
        "optimizer.step()\noptimizer.zero_grad()\n"
        "average = ExponentialMovingAverage(net.parameters(), decay=0.9)\naverage.update()\n"
        "rate, is_one = optimizer.param_groups[0]['lr'], isinstance(optimizer, torch.optim.Optimizer)\n"
        "print(rate, is_one, bool((before != net.weight).all()))\n"
    )
    done = rehearsed({"main.py": text})
    assert (done.report.ended, done.stdout) == ("finished", "0.25 True True\n"), done.report.why


def test_a_schedule_of_a_missing_library_leaves_the_learning_rate_as_it_is(rehearsed):
    text = (
        "import torch\nfrom warmup_scheduler import GradualWarmupScheduler\nnet = torch.nn.Linear(2, 2)\n"
        "optimizer = torch.optim.SGD(net.parameters(), lr=0.5)\n"
        "schedule = GradualWarmupScheduler(optimizer, multiplier=1.0, total_epoch=5)\n"
        "optimizer.step()\nschedule.step()\n"
        "kind = torch.optim.lr_scheduler.LRScheduler\n"
        "print(schedule.optimizer is optimizer, schedule.get_last_lr(), isinstance(schedule, kind))\n"
    )
    done = rehearsed({"main.py": text})
    assert (done.report.ended, done.stdout) == ("finished", "True [0.5] True\n"), done.report.why


def test_an_image_goes_through_what_a_missing_library_would_have_changed(rehearsed):
    text = """
import numpy as np
from PIL import Image
from progress import Augment

class Chain:
    def __init__(self, *parts):
        self.parts = parts

    def __call__(self, image):
        for part in self.parts:
            image = part(image)
        return image

image = Image.new("RGB", (4, 3))
print(Chain(Augment(2, 9), np.asarray)(image).shape, Augment(image) is image)
"""
    done = rehearsed({"main.py": text})
    assert (done.report.ended, done.stdout) == ("finished", "(3, 4, 3) False\n"), done.report.why


def test_a_setting_that_nobody_set_is_what_the_caller_says_it_is_then(rehearsed):
    """A library of windows, or one of settings, that is not here: what it keeps is what a first start finds."""
    text = (
        "from windows import Settings\nsettings = Settings('company', 'application')\n"
        "print(settings.value('folder', 'models'), settings.get('size', default=224))\n"
        "print(settings.value('last', defaultValue=None))\n"
        "print(type(settings.value('other')).__name__, type(settings.save('folder', 'models')).__name__)\n"
        "print(type(settings.get('https://a.example', 'models')).__name__)\n"
    )
    done = rehearsed({"main.py": text})
    assert (done.report.ended, done.stdout) == ("finished", "models 224\nNone\nSilent Silent\nSilent\n"), done.report.why


def test_what_a_missing_library_would_have_raised_is_caught(rehearsed):
    text = (
        "from slowapi import Limiter\nfrom slowapi.errors import RateLimitExceeded\nimport slowapi\n"
        "print(issubclass(RateLimitExceeded, Exception), isinstance(Limiter, type))\nlimiter = Limiter(key_func=len)\n"
        "try:\n    raise KeyError('x')\nexcept (RateLimitExceeded, slowapi.ApiError):\n    print('other')\n"
        "except KeyError:\n    print('caught')\n"
    )
    done = rehearsed({"main.py": text})
    assert (done.report.ended, done.stdout) == ("finished", "True False\ncaught\n"), done.report.why


def test_a_store_that_is_not_here_holds_nothing(rehearsed):
    text = (
        "import asyncio\nimport redis\nimport redis.asyncio as remote\n"
        "store, other = redis.Redis(host='cache', port=6379), remote.from_url('redis://cache')\n"
        "async def cached(key):\n    await other.set(key, 'x', ex=60)\n    return await other.get(key)\n"
        "store.set('a', 1)\nprint(store.get('a'), asyncio.run(cached('a')))\n"
    )
    done = rehearsed({"main.py": text})
    assert (done.report.ended, done.stdout) == ("finished", "None None\n"), done.report.why
