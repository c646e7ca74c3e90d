import pytest

from tests.migrate.worker.rehearsal.hosts.opening import DEAF, OPENING

HANDLER = """
import json
from http.server import BaseHTTPRequestHandler, HTTPServer

class Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        if self.path != "/predict":
            return self.send_error(404)
        data = self.rfile.read(int(self.headers["Content-Length"]))
        try:
            rows = len(NET(opened(DATA)))
        except (OSError, ValueError, KeyError) as error:
            return self.send_error(400, type(error).__name__)
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps({"rows": rows}).encode())

    def log_message(self, *_):
        pass

HTTPServer(("", 0), Handler).serve_forever()
print("after")
"""


@pytest.mark.parametrize(
    ("data", "form"),
    [("data", "image at /predict"), ("base64.b64decode(json.loads(data)['picture'])", "JSON picture at /predict")],
)
def test_a_handler_that_serves_for_ever_is_asked_once_and_the_script_goes_on(rehearsed, data, form):
    done = rehearsed({"main.py": DEAF + OPENING + HANDLER.replace("DATA", data)})
    assert done.stdout == 'Handler of http.server: "200 {\\"rows\\": 1}"\nafter\n', done.stderr
    assert (
        done.standins("servers")[0].what
        == f"Handler of http.server was called with a made image ({form}) instead of being served"
    )


def test_an_error_in_the_handler_stops_the_rehearsal(rehearsed):
    done = rehearsed({"main.py": OPENING + HANDLER.replace("DATA", "data[1 // 0:]")})
    assert (done.report.ended, done.report.why.partition(":")[0]) == ("stopped", "ZeroDivisionError")


WSGI = """
from wsgiref.simple_server import make_server

def application(environ, start_response):
    if environ["PATH_INFO"] != "/score":
        start_response("404 Not Found", [])
        return [b""]
    rows = len(NET(opened(environ["wsgi.input"].read(int(environ["CONTENT_LENGTH"])))))
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [str(rows).encode()]

with make_server("", 0, application) as server:
    server.serve_forever()
"""


def test_an_application_behind_a_librarys_handler_is_asked_at_its_paths(rehearsed):
    done = rehearsed({"main.py": DEAF + OPENING + WSGI})
    assert done.stdout == 'WSGIRequestHandler of http.server: "200 1"\n', done.stderr


def test_what_a_library_serves_in_a_thread_is_no_application(rehearsed):
    text = """
import threading
from wsgiref.simple_server import WSGIRequestHandler, make_server
server = make_server("", 0, lambda environ, start: [])
threading.Thread(target=server.serve_forever, daemon=True).start()
server.shutdown()
print("ended")
"""
    done = rehearsed({"main.py": text})
    assert done.stdout == "ended\n"
    assert not done.standins("servers")
