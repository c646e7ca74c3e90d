"""Updates that are split over ranks, with what networks and optimizers have beside the usual: as on one device."""

import pytest

pytestmark = pytest.mark.timeout(900)  # several processes that wait for each other, on whatever cores there are

RATE = {"lr": 1e-2}
CHANGES = {
    "frozen for two steps, then another with it": {"2": ["freeze"], "4": ["melt"]},
    "unused in one step": {"2": ["mode"], "3": ["mode"]},
    "a group that comes later": {"2": ["group", "melt"]},
    "the state loaded into itself": {"2": ["reload"]},
}


def check(ranks, count, shape, trainings):
    results = ranks.run(count, "updates", program="update_program.py", shape=shape, trainings=trainings)
    for at, given in enumerate(trainings):
        for *apart, way in (rank[at] for rank in results):
            assert max(apart) < 1e-6, (given, apart)
            assert "captured" in way, (given, way)


def test_torchs_optimizers_and_others(ranks):
    trainings = [
        ("AdamW", {**RATE, "fused": True}, 2),
        ("ASGD", RATE, 1),
        ("NAdam", RATE, 2),
        ("own", RATE, 1),
        ("hooked", RATE, 2),
        ("rated", {}, 1),
        ("two groups", {**RATE, "foreach": True}, 2),
    ]
    check(ranks, 2, [2, 1], [(kind, settings, {"stages": 2, "zero": zero}) for kind, settings, zero in trainings])


@pytest.mark.slow  # the hardest of them, and each path of an update, are above
def test_every_optimizer(ranks):
    kinds = ("SGD", "Adam", "RAdam", "Adagrad", "Adadelta", "Adamax", "RMSprop", "Rprop", "ASGD", "own", "two groups")
    check(ranks, 2, [2, 1], [(kind, RATE, {"stages": 2, "zero": zero}) for kind in kinds for zero in (1, 2)])
    more = [{"amsgrad": True}, {"maximize": True}, {"foreach": True}]
    check(ranks, 2, [2, 1], [("AdamW", {**RATE, **one}, {"stages": 2, "zero": zero}) for one in more for zero in (1, 2)])


def test_parameters_that_come_and_go(ranks):
    """In pipelines, where a gradient of the user's own counts too, and in parallel graphs, whose parameters are split."""
    every = {"2": ["freeze", "mode"], "4": ["mode", "group", "melt"], "5": ["reload"]}
    staged = {**every, "5": ["reload", "gradient"]}
    check(ranks, 2, [2, 1], [("Adam", RATE, {"stages": 2, "zero": 2, "changes": staged, "count": 7})])
    check(ranks, 2, [2], [("Adam", RATE, {"zero": 3, "changes": every, "count": 7})])


@pytest.mark.slow  # all of them are in the one above
@pytest.mark.parametrize("zero", [0, 1, 2])
def test_each_change_by_itself(ranks, zero):
    for shape, more in (([2, 1], {"stages": 2}), ([2], {})):
        options = [{"zero": zero, "changes": one, "count": 6, **more} for one in CHANGES.values()]
        check(ranks, 2, shape, [("Adam", RATE, one) for one in options])


@pytest.mark.parametrize(
    ("shape", "options"),
    [
        ([3, 1], {"stages": 2, "zero": 2, "clip_grad_value": 0.05}),
        pytest.param([3], {"zero": 1}, marks=pytest.mark.slow),  # shared out in the same way: test_shares, and as above
    ],
)
def test_ranks_that_share_out_nothing_evenly(ranks, shape, options):
    check(ranks, 3, shape, [("AdamW", RATE, {"clip_grad_norm": 0.2, "accumulate": 2, **options})])


def test_parameters_in_16_bits(ranks):
    for same, dtypes in ranks.run(2, "reduced", program="update_program.py", stages=2):
        assert same
        assert dtypes == ["torch.bfloat16"]


@pytest.mark.parametrize(
    ("zero", "most"), [*(pytest.param(*one, marks=pytest.mark.slow) for one in ((0, 8), (1, 11))), (2, 16)]
)
def test_collectives_are_not_as_many_as_parameters(ranks, zero, most):
    """A step's checks, its loss, a gather, and of gradients one sum, or one of each kind for a stage and a microbatch."""
    for found, parameters in ranks.run(2, "posted", program="update_program.py", zero=zero):
        assert found <= most
        assert parameters == 12


def test_two_networks_with_an_optimizer_each(ranks):
    assert max(ranks.run(2, "two_optimizers", program="update_program.py", zero=2)) < 1e-6


@pytest.mark.slow  # of two ranks, with their checkpoints: test_stage_parameters
def test_ranks_without_parameters(ranks):
    results = ranks.run(4, "without_parameters", program="update_program.py", zero=2)
    assert max(max(furthest) for *furthest, _ in results) < 1e-6
    assert [kept > 0 for *_, kept in results] == [True, False, True, False]


@pytest.mark.parametrize("zero", [pytest.param(1, marks=pytest.mark.slow), 2])  # 2 splits all that 1 does
def test_what_would_go_wrong_silently_is_told_to_all_ranks(ranks, zero):
    one, other = ranks.run(2, "misled", program="update_program.py", zero=zero)
    assert one == other
    assert "have gradients of other parameters" in one[0]
    assert isinstance(one[1], float)
    assert all("module.weight is a conversion that is made when it is read" in text for text in one[2:])


def test_modules_of_another_graph_are_refused(ranks):
    for told in ranks.run(2, "second_graph", program="update_program.py"):
        assert "these modules are stages of another graph, which has taken a step" in told


@pytest.mark.parametrize("zero", [pytest.param(1, marks=pytest.mark.slow), 2])  # each waits in a gather of the update
def test_a_rank_that_is_killed_within_an_update_is_named(ranks, zero):
    begun = ranks.start(2, "losing_within_an_update", program="update_program.py", zero=zero)
    ranks.end_for_the_loss_of(1, begun)
