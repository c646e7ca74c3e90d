"""What a script of one process takes to run on several ranks, and what keeps it as it was."""

import pytest

from headrace.migrate.rewriting.rewrite import choose_rules, rewrite
from headrace.migrate.survey.survey import survey
from tests.migrate.rewriting.parallel.styles import DATA, NET, REPLICATED


@pytest.fixture
def change_of(tmp_path):
    def run(*edits, **files):
        text = REPLICATED
        for old, new in edits:
            assert old in text, old
            text = text.replace(old, new)
        for name, content in {"net": NET, "data": DATA, "train": text, **files}.items():
            (tmp_path / f"{name}.py").write_text(content)
        rules = choose_rules(["PS305", "PS306"], options=["parallel"])
        return {change.path: change for change in rewrite(survey(tmp_path), rules=rules)}["train.py"]

    return run


END = "        print(epoch, loss.item(), accuracy(net, test_loader, device))\n"


def test_rank_0_alone_saves(change_of):
    save = (
        "        torch.save(\n            {'net': net.module.state_dict(), 'at': epoch},\n            'net.pth',\n        )\n"
    )
    after = change_of((END, END + save)).after.decode()
    assert (
        "        if headrace.parallel.rank() == 0:\n            torch.save(\n            {'net': headrace.parallel.whole(net"
        in after
    )
    compile(after, "train.py", "exec")


@pytest.mark.parametrize(
    ("edit", "why"),
    [
        ((END, END + "        with open('log.txt', 'a') as log:\n            log.write('x')\n"), "opens a file to write"),
        (("import os\n", "import os\n\nfrom torch.utils.tensorboard import SummaryWriter\n"), "which each rank would do"),
        ((END, END + "        saved = torch.save(net.module.state_dict(), 'a') or 1\n"), "calls save, which each rank"),
        (("images.to(device), labels.to(device)\n            opt", "images.cuda(0), labels.to(device)\n            opt"),
         "chooses a GPU"),
        (('"cuda" if', '"cuda:0" if'), "names one GPU, cuda:0"),
        (("nn.DataParallel(net)", "nn.DataParallel(net, dim=1)"), "options that a global model has not: dim"),
        ((END, END + "        torch.save(net.state_dict(), 'net.pth')\n"), "depends on whether the model is wrapped"),
    ],
)  # fmt: skip
def test_a_script_that_would_do_something_once_for_each_rank_stays(change_of, edit, why):
    change = change_of(edit)
    assert not change.changed
    assert why in change.findings[0].message, change.findings


def test_one_whose_helper_writes_stays(change_of):
    helper = "import torch\n\n\ndef keep(state):\n    torch.save(state, 'net.pth')\n"
    change = change_of(
        ("import os\n", "import os\n\nfrom helper import keep\n"), (END, END + "        keep(1)\n"), helper=helper
    )
    assert "helper.py:5 writes files" in change.findings[0].message
