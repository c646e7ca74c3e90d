from tests.migrate.worker.rehearsal.hosts.opening import OPENING

TASKS = """
import base64, io
from celery import Celery, Task
app = Celery("images", broker="redis://localhost")
app.conf.update(task_serializer="json")

class ModelTask(Task):
    _net = None

    @property
    def net(self):
        self._net = self._net or NET
        return self._net

@app.task
def add(a, b):
    raise SystemExit(3)

@app.task(bind=True, base=ModelTask, max_retries=3)
def classify(self, payload):
    image = opened(base64.b64decode(payload["image"]))
    return {"known": payload.get("id") is not None, "classes": self.net(image).shape[1]}
"""


def test_a_task_is_handed_a_made_image_and_the_task_itself(rehearsed):
    done = rehearsed({"tasks.py": OPENING + TASKS}, script="tasks.py")
    assert done.report.ended == "finished", done.stderr
    assert done.stdout.startswith("the task classify: ")
    assert '"classes": 3}' in done.stdout
    assert "the task classify was called with a made image (base64)" in done.standins("servers")[0].what


def test_an_error_in_a_task_stops_the_rehearsal(rehearsed):
    done = rehearsed({"tasks.py": OPENING + TASKS.replace("self.net(image)", "self.net(image)[1 // 0]")}, script="tasks.py")
    assert (done.report.ended, done.report.why.partition(":")[0]) == ("stopped", "ZeroDivisionError")


def test_functions_that_no_queue_calls_are_none(rehearsed):
    text = TASKS.replace("@app.task", "@staticmethod").replace("(bind=True, base=ModelTask, max_retries=3)", "")
    assert rehearsed({"tasks.py": OPENING + text}, script="tasks.py").stdout == ""
