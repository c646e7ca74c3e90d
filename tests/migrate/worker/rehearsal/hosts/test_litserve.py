from tests.migrate.worker.rehearsal.hosts.opening import OPENING

API = """
import litserve as ls

class Api(ls.LitAPI):
    def setup(self, device):
        self.net = NET.to(device)

    def decode_request(self, request):
        return opened(base64.b64decode(request["picture"]))

    def predict(self, x):
        return self.net(x)

    def encode_response(self, output):
        return {"rows": len(output), "classes": output.shape[1]}
"""
ANSWER = 'Api of LitServe: {"rows": 1, "classes": 3}\n'


def test_an_api_that_nothing_starts_is_called_once(rehearsed):
    done = rehearsed({"main.py": OPENING + API})
    assert (done.report.ended, done.stdout) == ("finished", ANSWER)
    assert (
        done.standins("servers")[0].what
        == "Api of LitServe was called with a made image (base64 as picture) instead of being served"
    )


def test_a_server_that_runs_calls_it_instead_and_the_script_goes_on(rehearsed):
    text = OPENING + API + "ls.LitServer(Api(), accelerator='auto', workers_per_device=2).run(port=8000)\nprint('after')\n"
    assert rehearsed({"main.py": text}).stdout == ANSWER + "after\n"


def test_an_api_of_another_file_is_called_too(rehearsed):
    main = "import litserve\nfrom api import Api\nif __name__ == '__main__':\n    litserve.LitServer([Api()]).run()\n"
    assert rehearsed({"api.py": OPENING + API, "main.py": main}).stdout == ANSWER


def test_batches_go_through_batch_and_unbatch(rehearsed):
    text = API.replace("return opened", "return opened(base64.b64decode(request['picture']))[0] if 1 else opened")
    text = text.replace("len(output)", "1").replace("output.shape[1]", "len(output)")
    assert rehearsed({"main.py": OPENING + text + "ls.LitServer(Api(max_batch_size=4)).run()\n"}).stdout == ANSWER


def test_uploads_constructors_and_asynchronous_methods(rehearsed):
    text = API.replace('base64.b64decode(request["picture"])', 'request["content"].file.read()')
    text = text.replace("    def predict(self, x):", "    async def predict(self, x, context):")
    text = text.replace("    def setup", "    def __init__(self):\n        self.own = 1\n\n    def setup")
    done = rehearsed({"main.py": OPENING + text})
    assert done.stdout == ANSWER, done.stderr
    assert "(upload as content)" in done.standins("servers")[0].what


def test_of_derived_apis_the_last_one_is_called(rehearsed):
    text = API + "\nclass Other(Api):\n    def encode_response(self, output):\n        return 'other'\n"
    assert rehearsed({"main.py": OPENING + text}).stdout == 'Other of LitServe: "other"\n'
