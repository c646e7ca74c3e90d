import pytest
import torch

from headrace.migrate.worker.rehearsal.edges import device

pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="the script has a GPU")


def test_tensors_modules_and_factories_told_cuda_stay_on_the_cpu(on_stage):
    world = on_stage(device)
    names = world.play(
        """
import torch
device = torch.device("cuda:0")
net = torch.nn.Linear(2, 2).cuda().to(device).to("cuda", torch.float64)
one = torch.ones(2)
found = [net.weight, one.cuda(non_blocking=True), one.cuda(0), torch.zeros(2, device=device), torch.tensor([1], device="cuda"),
         torch.ones(2).to(0), torch.ones(2).to(device=device, dtype=torch.half), torch.ones(2).new_zeros(3, device="cuda"),
         torch.arange(3, device="cuda"), torch.rand_like(one, device="cuda"), torch.ones(2).type("torch.cuda.FloatTensor"),
         torch.cuda.FloatTensor([1.0]), torch.ones(2).pin_memory()]
"""
    )
    assert {tensor.device.type for tensor in names["found"]} == {"cpu"}
    assert names["net"].weight.dtype == torch.float64
    assert names["found"][6].dtype == torch.float16
    assert world.said("device") == ["the CPU stood in for CUDA"] * len(world.stage.standins)
    assert world.stage.standins


@pytest.mark.parametrize("told", ["0", "rank", "device=0", "0, torch.float64", "rank, non_blocking=True"])
def test_a_module_that_goes_to_the_gpu_of_a_rank_stays_on_the_cpu(on_stage, told):
    world = on_stage(device)
    names = world.play(f"import torch\nrank = 0\nnet = torch.nn.Linear(2, 2).to({told})\n")
    assert names["net"].weight.device.type == "cpu"
    assert names["net"].weight.dtype == (torch.float64 if "float64" in told else torch.float32)
    assert world.said("device")


def test_what_names_no_gpu_is_as_it_was(on_stage):
    world = on_stage(device)
    names = world.play(
        "import torch\nx = torch.ones(2).to(torch.float64)\ny = x.to(torch.ones(1))\nz = torch.zeros(2, device='meta')\n"
    )
    assert (names["x"].dtype, names["y"].dtype, names["z"].device.type) == (torch.float64, torch.float32, "meta")
    assert world.said("device") == []


def test_synchronizing_timing_and_asking_are_answered(on_stage):
    names = on_stage(device).play(
        """
import torch
torch.cuda.set_device(0)
torch.cuda.synchronize()
torch.cuda.empty_cache()
start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
start.record(); end.record()
with torch.cuda.stream(torch.cuda.Stream()):
    with torch.cuda.device(0):
        took = start.elapsed_time(end)
memory = torch.cuda.max_memory_allocated() / 1024
name = torch.cuda.get_device_name(0), torch.cuda.get_device_capability()
there = torch.cuda.is_available()
"""
    )
    assert names["took"] >= 0
    assert (names["memory"], names["name"], names["there"]) == (0, ("CPU", (8, 0)), False)


def test_a_checkpoint_of_a_gpu_is_loaded(on_stage, tmp_path):
    torch.save({"x": torch.ones(2)}, tmp_path / "x.pt")
    names = on_stage(device).play(
        f"import torch\npath = {str(tmp_path / 'x.pt')!r}\n"
        "found = [torch.load(path, map_location=m)['x'] for m in ('cuda', torch.device('cuda:0'), {'cuda:0': 'cuda:1'},"
        " lambda storage, place: storage.cuda(0), None)]\n"
    )
    assert all(torch.equal(tensor, torch.ones(2)) for tensor in names["found"])


@pytest.mark.parametrize(
    "text",
    [
        "import torch\nassert torch.cuda.is_available()\n",
        "import torch\nassert torch.cuda.device_count() == 1\n",
        "import torch\ntorch.cuda.set_device(0 % torch.cuda.device_count())\n",
        "import torch\nif not torch.cuda.is_available():\n    raise SystemExit('no GPU was found')\n",
        "import torch\nraise RuntimeError('CUDA is needed')\n",
    ],
)
def test_a_script_that_insists_is_told_of_a_gpu_and_libraries_are_not(on_stage, text):
    world = on_stage(device)
    with pytest.raises((Exception, SystemExit)) as caught:
        world.play(text)
    assert device.lesson(world.stage, caught.value)
    assert not device.lesson(world.stage, caught.value)  # nothing new


def test_only_the_users_code_is_told(on_stage):
    world = on_stage(device, learned={"cuda": True})
    names = world.play("import torch\nthere = torch.cuda.is_available(), torch.cuda.device_count()\n")
    assert names["there"] == (True, 1)
    assert not torch.cuda.is_available()
    assert device.remedy(world.stage, ValueError("no images")) is None
    assert "GPU" in device.remedy(world.stage, RuntimeError("No CUDA GPUs are available"))
    wanting = AttributeError("best.t7 is not here, and the script takes from it what has .cuda")
    assert device.remedy(world.stage, wanting) is None  # the file is wanted


def test_another_error_teaches_nothing(on_stage):
    world = on_stage(device)
    with pytest.raises(ZeroDivisionError) as caught:
        world.play("1 / 0\n")
    assert not device.lesson(world.stage, caught.value)


def test_a_batch_of_inference_mode_that_goes_to_a_gpu_can_be_trained_on(rehearsed):
    text = (
        "import torch\ndevice = torch.device('cuda' if torch.cuda.is_available() else 'cpu')\n"
        "with torch.inference_mode():\n    x = torch.ones(1, 2) * 2\n"
        "net = torch.nn.Linear(2, 1).to(device)\nnet(x.to(device)).sum().backward()\nprint('on')\n"
    )
    done = rehearsed({"main.py": text})
    assert (done.report.ended, done.stdout) == ("finished", "on\n"), done.stderr


def test_a_script_that_leaves_it_at_that_without_a_gpu_is_told_of_one(on_stage):
    text = "import torch\nif torch.cuda.is_available():\n    print('on')\n"
    world = on_stage(device)
    world.play("import torch\n")
    assert not device.in_vain(world.stage)
    world.play(text)
    assert device.in_vain(world.stage)
    assert world.stage.learned["cuda"]
    assert not device.in_vain(world.stage)


def test_what_makes_tensors_can_be_scripted(rehearsed):
    text = """
import torch
import torch.distributed.optim
def ramp(count: int):
    return torch.arange(count) + torch.ones(count, dtype=torch.long)
@torch.jit.script
class Step:
    def __init__(self, size: int):
        self.rates = torch.zeros(size) + torch.tensor(1e-3)
print(torch.jit.script(ramp)(3).tolist())
"""
    done = rehearsed({"main.py": text})
    assert done.stdout == "[1, 2, 3]\n", done.report.why


@pytest.mark.parametrize("made", ["torch.cuda.amp.GradScaler()", "torch.amp.GradScaler()", "torch.amp.GradScaler('cuda')"])
def test_a_scaler_for_gradients_on_a_gpu_scales_them_here(rehearsed, made):
    text = f"""
import torch
weight = torch.nn.Parameter(torch.ones(2))
optimizer = torch.optim.SGD([weight], lr=1.0)
scaler = {made}
scaler.scale((weight * 3).sum()).backward()
scaler.unscale_(optimizer)
scaler.step(optimizer)
scaler.update()
print(weight.tolist(), scaler.state_dict()["scale"], torch.amp.GradScaler("cuda", enabled=False).state_dict())
"""
    done = rehearsed({"main.py": text})
    assert done.stdout == "[-2.0, -2.0] 65536.0 {}\n", done.report.why


WRAPPED = """
import torch
net = torch.nn.Sequential(torch.nn.Linear(2, 2))
if torch.cuda.is_available():
    net = torch.nn.DataParallel(net)
inner = net.module
kept = torch.nn.DataParallel(net).module
exported = torch.export.export(net, (torch.ones(1, 2),)).module()
print(sorted(inner.state_dict()), kept is net, torch.equal(exported(torch.ones(1, 2)), net(torch.ones(1, 2))))
"""


def test_where_no_gpu_is_no_data_parallel_is_and_a_model_is_its_own_module(rehearsed):
    done = rehearsed({"main.py": WRAPPED})
    assert (done.report.ended, done.stdout) == ("finished", "['0.bias', '0.weight'] True True\n"), done.stderr
    assert [item.what for item in done.standins("device")] == [
        "without a GPU no DataParallel wraps the model, whose module it is itself"
    ]


def test_a_script_that_wraps_nothing_has_made_a_mistake(rehearsed):
    done = rehearsed({"main.py": "import torch\nnet = torch.nn.Linear(2, 2)\nnet.module.state_dict()\n"})
    assert done.report.ended == "stopped"
    assert "'Linear' object has no attribute 'module'" in done.report.why


def test_the_device_of_a_number_is_one_that_is_here(rehearsed):
    text = (
        "import torch\n\ndef place(gpu: torch.device | int = 0) -> torch.device:\n"
        "    return gpu if isinstance(gpu, torch.device) else torch.device(gpu)\n\n"
        "first, second = place(), torch.device('cpu', 0)\n"
        "net = torch.nn.Linear(2, 2).to(first)\ntorch.save(net.state_dict(), 'net.pt')\n"
        "print(torch.load('net.pt', map_location=torch.device(device=1))['bias'].device, second, place(first) == first)\n"
    )
    done = rehearsed({"main.py": text})
    assert (done.report.ended, done.stdout) == ("finished", "cpu cpu:0 True\n"), done.report.why
    assert done.standins("device")


def test_a_library_that_is_loaded_for_cuda_alone_is_not_missed(rehearsed):
    text = "import ctypes\nctypes.cdll.LoadLibrary('caffe2_nvrtc.dll')\nctypes.CDLL(name='libcudart.so.99')\nprint('on')\n"
    done = rehearsed({"main.py": text})
    assert (done.report.ended, done.stdout) == ("finished", "on\n"), done.report.why
    assert "caffe2_nvrtc.dll, a library of CUDA's or of Windows, was not loaded" in [i.what for i in done.standins("device")]
    done = rehearsed({"main.py": "import ctypes\nctypes.CDLL('libown.so')\n"})
    assert done.report.why.startswith("OSError: libown.so")


def test_an_error_of_the_system_that_a_script_raises_for_want_of_a_gpu(rehearsed):
    text = (
        "import torch\nif torch.cuda.is_available() is False:\n    raise EnvironmentError('no GPU device was found.')\n"
        "print(torch.ones(2).cuda().sum().item())\n"
    )
    done = rehearsed({"main.py": text})
    assert (done.report.ended, done.report.attempts, done.stdout) == ("finished", 2, "2.0\n"), done.report.why


@pytest.mark.parametrize("moved", ["net.to(device)", "net.to('cuda')", "net.cuda()"])
def test_layers_that_have_no_weights_yet_are_moved(rehearsed, moved):
    text = f"""
import torch
from torch import nn

net = nn.Sequential(nn.LazyConv2d(4, 3), nn.LazyBatchNorm2d(), nn.Flatten(), nn.LazyLinear(5))
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
net = {moved}
print(net(torch.rand(2, 3, 8, 8)).shape, net[0].weight.shape)
"""
    done = rehearsed({"main.py": text})
    assert (done.report.ended, done.stdout) == ("finished", "torch.Size([2, 5]) torch.Size([4, 3, 3, 3])\n"), done.report.why
