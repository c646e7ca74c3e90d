import pytest

from tests.migrate.worker.rehearsal.hosts.opening import OPENING

PREDICTOR = """
import cog

class Predictor(cog.BasePredictor):
    def setup(self) -> None:
        self.net = NET

    def predict(
        self,
        hint: str,
        kind: str = cog.Input(choices=["small", "large"]),
        picture: cog.Path = cog.Input(description="what to classify"),
        scale: float = cog.Input(default=2.0, ge=0),
    ) -> list[str]:
        with open(picture, "rb") as file:
            scores = self.net(opened(file.read())) * scale
        return [repr(hint), kind, str(scale), str(scores.shape[1])]
"""
ANSWER = 'Predictor of Cog: ["\'\'", "small", "2.0", "3"]\n'


def test_a_predictor_is_set_up_and_predicts_once(rehearsed):
    done = rehearsed({"main.py": OPENING + PREDICTOR})
    assert (done.report.ended, done.stdout) == ("finished", ANSWER), done.stderr
    assert (
        done.standins("servers")[0].what
        == "Predictor of Cog was called with a made image (a file as picture) instead of being served"
    )


@pytest.mark.parametrize("annotation", ["cog.Path | None", "typing.Optional[cog.Path]"])
def test_an_image_that_may_be_left_out_is_given(rehearsed, annotation):
    text = PREDICTOR.replace("hint: str,", "hint: str = 'x',").replace('choices=["small", "large"]', 'default="small"')
    text = text.replace("picture: cog.Path = cog.Input(", f"picture: {annotation} = cog.Input(default=None, ")
    assert rehearsed({"main.py": "import typing\n" + OPENING + text}).stdout == ANSWER.replace("''", "'x'")


def test_answers_that_come_one_by_one_and_those_that_are_awaited(rehearsed):
    text = PREDICTOR.replace("return [", "yield from [")
    assert rehearsed({"main.py": OPENING + text}).stdout == ANSWER
    text = PREDICTOR.replace("    def predict(", "    async def predict(")
    assert rehearsed({"main.py": OPENING + text}).stdout == ANSWER


def test_of_derived_predictors_the_last_one_is_called(rehearsed):
    text = PREDICTOR + "\nclass Other(Predictor):\n    pass\n"
    assert rehearsed({"main.py": OPENING + text}).stdout == ANSWER.replace("Predictor", "Other")


def test_a_predictor_without_an_image_shows_its_error(rehearsed):
    text = PREDICTOR.replace('open(picture, "rb")', 'open(hint, "rb")')
    done = rehearsed({"main.py": OPENING + text})
    assert done.report.ended == "stopped"
