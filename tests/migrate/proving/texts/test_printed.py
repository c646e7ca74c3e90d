import pytest
import torch

from headrace.migrate.proving.texts.printed import first_difference


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("a\nb\n", "a\nb"),
        ("Epoch time 3.2 s\nAcc 91.25%", "Epoch time 1.1 s\nAcc 91.25%"),
        ("Epoch   1 | Time     7 | Train Loss 0.6 | Error 98.4", "Epoch   1 | Time     0 | Train Loss 0.6 | Error 98.4"),
        ("  5%|x\r 100%|xx\nAcc 1", " 100%|xx\nAcc 1"),
        ("loss 0.1234 acc 91.2", "loss 0.1235 acc 91.2"),
        ("loss 1.23e-05", "loss 1.24e-05"),
        ("test/loss  2.392971992492676  |", "test/loss  2.392972230911255  |"),
        ("|  acc  |  0.300000011920929  |", "|  acc  |         0.3         |"),
        ("loss 1.2345678e-05", "loss 1.2345691e-05"),
        ("<Sampler object at 0x7fcb82831bd0>", "<Sampler object at 0x7f0db068c8d0>"),
        ("Accuracy 91.2\n1797 images in 2.1s", "Accuracy 91.2\n1797 images in 9.9s"),
        ("accuracy 0.91, 10.0 img/s", "accuracy 0.91, 1e3 img/s"),
        ("0.91 at 12 images per second", "0.91 at 9.5 images per second"),
        (
            "[0002/0003]  Time: 0.01188 (0.039)  Loss: 49.77379 (58.768)  Error: 1.00000 (1.000)",
            "[0002/0003]  Time: 1.20012 (3.041)  Loss: 49.77379 (58.768)  Error: 1.00000 (1.000)",
        ),
        ("Time  0.4 ( 0.4)\tData  0.0 ( 0.0)\tAcc@1 91.2 (90.1)", "Time 12.4 (10.2)\tData 10.0 (10.0)\tAcc@1 91.2 (90.1)"),
        ("eta: 0:00:03  img/s: 5.1 (4.2)  acc1: 91.2", "eta: 1 day, 0:00:03  img/s: 15.1 (14.2)  acc1: 91.2"),
        ("[00:01<00:00,  9.87it/s, acc=0.91]", "[01:12<00:09,  1.87s/it, acc=0.91]"),
        ("5s 3ms/step - accuracy: 0.93", "1s 980us/step - accuracy: 0.93"),
        ("Training complete in 3m 12s", "Training complete in 59.2s"),
        ("Inference time for 100 images: 3.21", "Inference time for 100 images: 0.21"),
        ("--- 3.2 seconds ---", "--- 1.1 seconds ---"),
        ("2026-11-22 22:52:56,123 INFO accuracy 0.91", "2026-11-23 00:00:01,001 INFO accuracy 0.91"),
        ("[2026/11/22 22:52] | not distributed", "[2026/11/23 00:01] | not distributed"),
        ("(main.py 348): INFO accuracy 0.91", "(main.py 351): INFO accuracy 0.91"),
        ("INFO:src/eval.py:48 accuracy 0.91", "INFO:src/eval.py:51 accuracy 0.91"),
        ('File "eval.py", line 48, in main', 'File "eval.py", line 51, in main'),
        ("runs/2026.11.22_22:52:56/log.txt", "runs/2026.11.23_00:00:01/log.txt"),
    ],
)
def test_lines_that_say_the_same(before: str, after: str) -> None:
    assert first_difference(before, after) is None


@pytest.mark.parametrize(
    ("before", "after", "pair"),
    [
        ("acc 91.25", "acc 91.27", ("acc 91.25", "acc 91.27")),
        ("loss 2.392971992492676", "loss 2.392989992492676", ("loss 2.392971992492676", "loss 2.392989992492676")),
        ("acc 0.91234567", "acc 0.91235678", ("acc 0.91234567", "acc 0.91235678")),
        ("seen 12345678", "seen 12345679", ("seen 12345678", "seen 12345679")),
        ("350/360 right", "351/360 right", ("350/360 right", "351/360 right")),
        ("eval.py: 348 right", "eval.py: 351 right", ("eval.py: 348 right", "eval.py: 351 right")),
        ("eval.py 348 right", "eval.py 351 right", ("eval.py 348 right", "eval.py 351 right")),
        ("eval.py:0.91", "eval.py:0.12", ("eval.py:0.91", "eval.py:0.12")),
        ("cat", "dog", ("cat", "dog")),
        ("a\nb", "a", ("b", "")),
        ("1 image in 2.0 s", "", ("1 image in 2.0 s", "")),
        ("a", "a\nwarning: new", ("", "warning: new")),
    ],
)
def test_lines_that_do_not(before: str, after: str, pair: tuple[str, str]) -> None:
    assert first_difference(before, after) == pair


@pytest.mark.parametrize(
    "line",
    [
        "accuracy {}, 10.0 img/s",
        "accuracy {} 10.0 img/s",
        "10 images/s {}",
        "Time 0.43 (0.44) Data 0.01 (0.02) Loss 0.5 (0.4) Acc@1 {} ({})",
        "Time: 0.01188 (0.039) Loss: {} (58.768) Error: 1.0 (1.000)",
        "Time: 0.01188 ({}) Loss: 0.3",
        "Time: 0.01188 ({}) Loss: 0.30000 Acc: 0.25 (0.5)",
        "[00:01<00:00, 9.87it/s, acc={}]",
        "took 3.2 s to reach {}",
        "Processed in 3.2 s ({})",
        "time to accuracy {}",
        "time for accuracy {}: 3.2 s",
        "accuracy per second {}",
        "acc {} secs 3.2",
        "acc {} seconds: 3.2",
        "{} correct, 3.2 s per image",
        "max 0.99 min {} in 3 min 12 s",
        "acc 0.99 max, {} min",
        "time/acc: 3.2/{}",
        "elapsed 3.2 {}",
        "elapsed {}% accuracy",
        "1875/1875 - 5s 3ms/step - loss: 0.2 - accuracy: {}",
        "[22:52:56] epoch 3: {}",
        "speed: 12.1, top-1: {}, top-5: 0.99",
        "test_time: 3.2, test_acc: {}",
        "| 3.2 s | {} |",
        "Epoch 1 | Time 7 | Error {}",
        "| time | accuracy {} |",
        "throughput=12 (best={})",
    ],
)
def test_no_wrong_accuracy_hides_behind_a_time(line: str) -> None:
    right, wrong = line.format("0.91", "0.91"), line.format("0.12", "0.12")
    assert first_difference(right, right) is None
    assert first_difference(right, wrong) == (right, wrong)


@pytest.mark.parametrize(
    ("before", "again", "after"),
    [
        ("run a1f3: accuracy 0.91", "run 77be: accuracy 0.91", "run 0c0c: accuracy 0.91"),
        (
            "saved to /tmp/tmpab12 after 3 epochs",
            "saved to /tmp/tmpcd34 after 3 epochs",
            "saved to /tmp/tmpef56 after 3 epochs",
        ),
        ("seed 4711\ntop-1 0.55", "seed 1234\ntop-1 0.55", "seed 99\ntop-1 0.55"),
    ],
)
def test_what_two_runs_of_the_original_print_otherwise_is_not_compared(before: str, again: str, after: str) -> None:
    assert first_difference(before, after) is not None
    assert first_difference(before, after, again) is None
    for right, wrong in (("0.91", "0.12"), ("3 epochs", "4 epochs"), ("0.55", "0.66")):
        if right in before:
            assert first_difference(before, after.replace(right, wrong), again) is not None


def test_what_has_another_form_each_time_is_compared() -> None:
    assert first_difference("left: a b", "left: a c", "left: b") == ("left: a b", "left: a c")
    assert first_difference("a\nb", "a\nc", "a") == ("b", "c")


def test_the_time_that_richs_handler_tells_once_per_second_is_none_of_the_line() -> None:
    stamp, blank = "[11/28/26 09:02:30] ", " " * 20
    assert first_difference(f"{blank}INFO     loss 0.5", f"{stamp}INFO     loss 0.5") is None
    assert first_difference(f"{stamp}INFO     loss 0.5", f"{blank}INFO     loss 0.8") is not None
    assert first_difference(f"{stamp}INFO     loss 0.5", f"{stamp}WARNING  loss 0.5") is not None


@pytest.mark.parametrize("width", [1, 40])
def test_numbers_of_a_tensor_are_compared_without_what_a_gradient_could_go_back_from(width: int) -> None:
    values = torch.nn.functional.softmax(torch.arange(2.0 * width).reshape(2, width).requires_grad_(), 0)
    plain = values.detach()
    assert "grad_fn" in repr(values)
    assert first_difference(f"scores {values}\ndone", f"scores {plain}\ndone") is None
    assert first_difference(f"scores {values}", f"scores {plain + 0.01}") is not None
    assert first_difference(f"grad_fn=<{values.sum()}>", "grad_fn=<>") is not None


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Run:     cnn-mnist-2026-12-01_17-13-34", "Run:     cnn-mnist-2026-12-01_17-09-42"),
        ("saved runs/net_20261201_171334/best.pth", "saved runs/net_20261201_170942/best.pth"),
        ("exp20261201-171334", "exp20261201-170942"),
        ("runs/Dec01_17-13-34_host", "runs/Dec01_17-09-42_host"),
        ("2026_12_01_17_13_34 begins", "2026_12_01_17_09_42 begins"),
        ("2026-12-01 17h13m34 begins", "2026-12-01 17h09m42 begins"),
        ("log_2026.12.01.txt", "log_2026.12.02.txt"),
    ],
)
def test_what_a_run_is_called_after_its_time_differs(one, other):
    assert first_difference(one, other) is None
    assert first_difference(f"{one} loss 0.5", f"{other} loss 0.8") is not None
    assert first_difference(f"{one} of cats", f"{other} of dogs") is not None


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("2026-12-01, 91.25", "2026-12-01, 92.25"),
        ("2026-12-01 10-20", "2026-12-01 10-30"),
        ("seen 20261201171334567 times", "seen 20261201170942567 times"),
        ("Dec01 17", "Dec01 18"),
        ("1234567 images", "1234568 images"),
    ],
)
def test_what_stands_beside_a_date_is_no_time(one, other):
    assert first_difference(one, other) is not None
