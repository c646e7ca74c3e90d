"""Command lines in documentation as people write it."""

from __future__ import annotations

import string
from pathlib import Path

import numpy as np
import pytest

from headrace.migrate.reading.arguments import OPEN
from headrace.migrate.survey.documented_commands import documented_commands


def read(root: Path, text: str, name: str = "README.md") -> list[tuple[str, str]]:
    """Scripts and arguments, `?` where something is left open."""
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    (root / name).write_text(text, encoding="utf-8")
    return [(item.script, " ".join(item.arguments).replace(OPEN, "?")) for item in documented_commands(root)]


@pytest.mark.parametrize(
    ("line", "script", "arguments"),
    [
        ("python train.py", "train.py", ""),
        ("$ python train.py -net vgg16 -gpu", "train.py", "-net vgg16 -gpu"),
        ("$ CUDA_VISIBLE_DEVICES=0,1 python3.10 -u train.py --lr 0.1", "train.py", "--lr 0.1"),
        ("(env) user@host:~/repo$ python ./tools/train.py a", "tools/train.py", "a"),
        (r"C:\repo> C:\Python311\python.exe tools\train.py --data .", "tools/train.py", "--data ."),
        ("%run train.py --epochs 3", "train.py", "--epochs 3"),
        ("!python train.py --epochs 3  # a short run", "train.py", "--epochs 3"),
        ('python train.py "val-{0000..0007}.tar"', "train.py", "val-{0000..0007}.tar"),
        ("nohup python train.py -a x > log.txt 2>&1 &", "train.py", "-a x"),
        ("python train.py --a b | tee log", "train.py", "--a b"),
        ("python train.py --a b |& tee log", "train.py", "--a b"),
        ("cd tools && python train.py --a b && echo done", "train.py", "--a b"),
        ("python train.py --a b; python eval.py", "train.py", "--a b"),
        ('python train.py --name "two words" --opts A.B 1', "train.py", "--name two words --opts A.B 1"),
        ("torchrun --nproc_per_node=8 --master_port 12345 main.py --cfg a.yaml", "main.py", "--cfg a.yaml"),
        ("python -m torch.distributed.launch --nproc_per_node 8 main.py --cfg a.yaml", "main.py", "--cfg a.yaml"),
        ("python -m torch.distributed.run --nnodes=2 -m pkg.cli --x 1", "pkg/cli.py", "--x 1"),
        ("accelerate launch --mixed_precision fp16 train.py --x 1", "train.py", "--x 1"),
        ("mpirun -np 4 -H localhost:4 python train.py --x 1", "train.py", "--x 1"),
        ("python -W ignore train.py --x 1", "train.py", "--x 1"),
        ("python -m pkg.cli train --config a.yaml", "pkg/cli.py", "train --config a.yaml"),
        ("python -m tool eval", "src/tool/__main__.py", "eval"),
        ("streamlit run app.py", "app.py", ""),
        ("python train.py --data <path/to/data> --arch [model name] --lr 0.1", "train.py", "--data ? --arch ? --lr 0.1"),
        ("python train.py [--mode=finetune/scratch] --resume [--lr 0.1]", "train.py", "--resume"),
        ("python train.py /path/to/imagenet --out=$OUT --w path_to_weights --d ${D}", "train.py", "? ? --w ? --d ?"),
        ("python train.py --a DATA_DIR --b PATH --c {x,y} --d ... --e your_model.pth --f xxx", "train.py", "--a ? --b ? --c ? --d ? --e ? --f ?"),  # noqa: E501
        ("python train.py --loss NLL --set CIFAR10 --opt SGD --grid [1,2]", "train.py", "--loss NLL --set CIFAR10 --opt SGD --grid [1,2]"),  # noqa: E501
        ("python train.py --help", "train.py", "--help"),
        ("python 训练.py", None, ""),
        ("python train.py --name 图片.jpg", "train.py", "--name ?"),
        ("python train.py --t 'unbalanced", "train.py", "--t unbalanced"),
        ("python setup.py install", "setup.py", "install"),
        ("python -c 'import train.py'", None, ""),
        ("python --version", None, ""),
        ("python3.6 is required for train.py", None, ""),
        ("ipython train.py", None, ""),
        ("# python train.py --old", None, ""),
        ("pip install python train.py", "train.py", ""),  # who writes this means no command, and loses nothing
        ("", None, ""),
    ],
)  # fmt: skip
def test_a_line_in_a_fence(tmp_path: Path, line: str, script: str | None, arguments: str) -> None:
    for path in ("tools/train.py", "pkg/cli.py", "src/tool/__main__.py"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).touch()
    found = read(tmp_path, f"# Use\n\n```bash\n{line}\n```\n")
    assert found[:1] == ([(script, arguments)] if script is not None else [])


def test_code_is_told_from_prose(tmp_path: Path) -> None:
    text = """
Run `python eval.py --arch small data` to evaluate, or python train.py --lr 0.1 to train it, then python demo.py.

* python test.py --net vgg
* `CUDA_VISIBLE_DEVICES=0 python show.py images`
1. Run `python one.py 1` and `python two.py 2`

    python indented.py a b

直接运行python plain.py --data './data'即可 除此之外
See `./utils/logger.py` and [main.py](main.py); Python 3.8 and train.py are needed.
"""
    assert read(tmp_path, text) == [
        ("eval.py", "--arch small data"), ("test.py", "--net vgg"), ("show.py", "images"), ("one.py", "1"), ("two.py", "2"),
        ("indented.py", "a b"), ("plain.py", "--data ?"),
    ]  # fmt: skip
    assert read(tmp_path, "To train use python train.py --lr 0.1 and wait.") == [("train.py", "--lr 0.1")]
    assert read(tmp_path, "To train use python train.py.") == [("train.py", "")]


def test_lines_go_on_and_places_are_told(tmp_path: Path) -> None:
    text = "# Use\n```\npython main.py --eval \\\n  --cfg configs/a.yaml \\ \n  --data <data>\n```\n    python last.py \\\n"
    (tmp_path / "README.rst").write_text(text)
    found = documented_commands(tmp_path)
    assert [(item.script, item.arguments, item.path, item.line) for item in found] == [
        ("main.py", ("--eval", "--cfg", "configs/a.yaml", "--data", OPEN), "README.rst", 3),
        ("last.py", (), "README.rst", 7),
    ]


def test_a_line_gets_the_variables_that_stand_in_blocks_before_it(tmp_path: Path) -> None:
    text = "```\nMODEL=net_t # net_{t, s}\npython3 main.py \\\n/path/to/data \\\n--model $MODEL --out ${OUT}\n```\n"
    text += "```python\nOUT = 'here'\n```\n```bash\n$ export MODEL='net_s'\npython main.py --model ${MODEL} --out $OUT\n```\n"
    (tmp_path / "main.py").touch()
    assert read(tmp_path, text) == [("main.py", "? --model net_t --out ?"), ("main.py", "--model net_s --out ?")]


def test_a_command_goes_on_in_lines_that_are_options(tmp_path: Path) -> None:
    text = "```\npython3 ./tools/train.py\n--data ./a b\n  --config_file ./config/x.cfg\n-v\n```\n--not mine\n"
    assert read(tmp_path, text) == [("tools/train.py", "--data ./a b --config_file ./config/x.cfg -v")]
    list_of_options = "Run `python main.py`:\n- the first\n--- \nand `python eval.py`\n\n--data is the folder.\n"
    assert read(tmp_path, list_of_options) == [("main.py", ""), ("eval.py", "")]


def test_remarks_after_backslashes_are_no_arguments(tmp_path: Path) -> None:
    text = '```\npython train.py --net="resnet18" \\ # network\n   --lr=0.1   \\  # rate\n   --seed 3 # last\n```\n'
    assert read(tmp_path, text) == [("train.py", "--net=resnet18 --lr=0.1 --seed 3")]


def test_scripts_lie_where_the_document_sees_them_and_readmes_come_first(tmp_path: Path) -> None:
    (tmp_path / "main.py").touch()
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub/own.py").touch()
    (tmp_path / "TRAINING.md").write_text("    python main.py --from training\n")
    (tmp_path / "run.sh").write_text("python main.py --from shell\n")
    (tmp_path / "sub/README.md").write_text("```\npython own.py\npython main.py --from sub\npython gone.py\n```\n")
    (tmp_path / "README.md").write_text("    python main.py --from readme\n    python own.py\n    python -m pip install x\n")
    (tmp_path / ".hidden").mkdir()
    (tmp_path / ".hidden/README.md").write_text("    python main.py --from hidden\n")
    found = documented_commands(tmp_path)
    assert [(item.script, item.is_file, item.readme, *item.arguments[1:]) for item in found] == [
        ("main.py", True, True, "readme"), ("own.py", False, True), ("sub/own.py", True, True), ("main.py", True, True, "sub"),
        ("gone.py", False, True), ("main.py", True, False, "training"), ("main.py", True, False, "shell"),
    ]  # fmt: skip


def test_shell_scripts_fill_in_their_variables(tmp_path: Path) -> None:
    text = """#!/bin/bash
MODEL="resnet18"
export BS=4   # small
OUT=$(date)
for NET in vgg16 vgg19
do
    python eval.py --model $MODEL --bs ${BS} --net $NET --out $OUT --more "$@" >> ${MODEL}.txt
done
"""
    assert read(tmp_path, text, "run.sh") == [("eval.py", "--model resnet18 --bs 4 --net vgg16 --out ? --more ?")]


def test_makefiles_and_dockerfiles(tmp_path: Path) -> None:
    make = "LR ?= 0.1\ntrain:\n\t@python train.py --lr $(LR) $(MORE)\n"
    docker = 'FROM python:3.11\nRUN pip install torch\nCMD ["python", "app.py", "--name", "a b"]\n'
    assert read(tmp_path, make, "Makefile") == [("train.py", "--lr 0.1 ?")]
    assert read(tmp_path, docker, "Dockerfile")[0] == ("app.py", "--name a b")
    for odd in ("CMD [not json]", "CMD " + "[" * 1900 + "]"):
        assert read(tmp_path, odd, "Dockerfile")[0][0] == "train.py"


def test_stages_and_services(tmp_path: Path) -> None:
    stages = "stages:\n  evaluate:\n    cmd: python eval.py model/net.pt ${data}\n    deps: [eval.py, model/net.pt]\n"
    assert read(tmp_path, stages, "dvc.yaml") == [("eval.py", "model/net.pt ?")]
    services = 'services:\n  web:\n    build: .\n    command: ["python", "app.py", "--port", "80"]\n'
    assert read(tmp_path, services, "docker-compose.yml")[0] == ("app.py", "--port 80")
    assert read(tmp_path, "worker: python app.py --queue images\n", "Procfile")[0] == ("app.py", "--queue images")


@pytest.mark.parametrize("seed", range(40))
def test_any_text_is_read(tmp_path: Path, seed: int) -> None:
    random = np.random.default_rng(seed)
    words = ["python", "python3.exe", "torchrun", "-m", "train.py", "`", "```", "\\\n", "\n", "\n    ", "<", ">", "[", "]", "'",
             '"', "$", "${X", "{", "|", "--a", "--a=", "-", "--", "=", "…", "中文", "\uff0c", "%run", "\t", "\0", "\ue000",
             "x.ipynb", "a.b", "CMD [", *string.punctuation]  # fmt: skip
    text = "".join(f"{words[index]}{' ' * int(random.integers(2))}" for index in random.integers(len(words), size=400))
    for name in ("README.md", "run.sh", "Makefile"):
        for script, _ in read(tmp_path, text, name):
            assert script
            assert "\n" not in script


def test_what_no_person_wrote_costs_little(tmp_path: Path) -> None:
    assert read(tmp_path, "    python a.py " + "--x 1 " * 100_000) == []
    assert read(tmp_path, "\\\n" * 100_000 + "    python a.py") == [("a.py", "")]
    assert len(read(tmp_path, "    python a.py\n" * 20_000)) == 2_000


def test_a_shell_script_is_given_what_the_readme_gives_it(tmp_path: Path) -> None:
    (tmp_path / "tools").mkdir()
    (tmp_path / "main.py").touch()
    (tmp_path / "tools/run.sh").write_text(
        'device=$1\nconfig=${2}\nmean="${3:-[0.5, 0.4]}"\nname=${4:-$(date +%y)}\nhere=$(pwd)\n'
        'python3 ${here}/main.py --device ${device} --config ${config} \\\n    --mean "${mean}" --name ${name} ${@:5}\n'
    )
    readme = "```\n$ bash ./tools/run.sh 0,1 a.yaml\n./tools/run.sh 2 <config> '[0.1, 0.2]' x > log.txt\nbash gone.sh 1\n```\n"
    found = read(tmp_path, readme + "Then run `sh tools/run.sh 3 b.yaml`; bash tools/run.sh is short.\n")
    assert found == [
        ("main.py", "--device 0,1 --config a.yaml --mean [0.5, 0.4] --name ? ?"),
        ("main.py", "--device 2 --config ? --mean [0.1, 0.2] --name x ?"),
        ("main.py", "--device 3 --config b.yaml --mean [0.5, 0.4] --name ? ?"),
        ("main.py", "--device ? --config ? --mean [0.5, 0.4] --name ? ?"),
    ]
    commands = documented_commands(tmp_path)
    assert [(item.path, item.line, item.readme) for item in commands] == [
        ("README.md", 2, True),
        ("README.md", 3, True),
        ("README.md", 6, True),
        ("tools/run.sh", 6, False),
    ]
    assert {item.written for item in commands} == {"main.py"}


def test_where_its_author_keeps_the_repository_is_where_it_is(tmp_path: Path) -> None:
    (tmp_path / "tools").mkdir()
    for name in ("main.py", "tools/eval.py"):
        (tmp_path / name).touch()
    text = (
        "USER=me\nPROJECT=/home/${USER}/project\nARCH=${1:-small}\npython $PROJECT/main.py --arch=$ARCH\n"
        "python ~/project/tools/eval.py\npython ${UNKNOWN}/tools/eval.py --x 1\npython /home/me/gone.py\n"
    )
    assert read(tmp_path, text, "run.sh") == [
        ("main.py", "--arch=small"), ("tools/eval.py", ""), ("tools/eval.py", "--x 1"), ("/home/me/gone.py", ""),
    ]  # fmt: skip
