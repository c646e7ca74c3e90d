import pytest

from tests.migrate.worker.rehearsal.hosts.opening import DEAF, OPENING

pytest.importorskip("aiohttp")

APP = """
import asyncio
from aiohttp import web
routes = web.RouteTableDef()

@routes.post("/classify")
async def classify(request):
    part = await (await request.multipart()).next()
    if part.name != "photo":
        raise web.HTTPBadRequest(text="no photo")
    x = opened(await part.read())
    scores = await asyncio.get_running_loop().run_in_executor(None, request.app["net"], x)
    return web.json_response({"classes": scores.shape[1] ANSWER})

@routes.get("/")
async def index(request):
    raise SystemExit(3)

async def on_startup(app):
    app["net"] = NET

def make_app():
    app = web.Application()
    app.add_routes(routes)
    app.on_startup.append(on_startup)
    return app
"""
RUN = "web.run_app(make_app(), port=8080)\nprint('after')\n"


def test_the_routes_of_an_application_are_asked_once_and_the_script_goes_on(rehearsed):
    done = rehearsed({"main.py": DEAF + OPENING + APP.replace("ANSWER", "") + RUN})
    assert done.stdout == 'POST /classify: 200 {"classes": 3}\nafter\n', done.stderr
    assert done.standins("servers")[0].what == "POST /classify was called with a made image (file photo) instead of serving"


def test_so_is_one_that_another_program_would_serve(rehearsed):
    done = rehearsed({"main.py": OPENING + APP.replace("ANSWER", "") + "app = make_app()\n"})
    assert done.stdout == 'POST /classify: 200 {"classes": 3}\n', done.stderr


def test_an_error_in_a_handler_stops_the_rehearsal(rehearsed):
    done = rehearsed({"main.py": OPENING + APP.replace("ANSWER", "// 0") + RUN})
    assert (done.report.ended, done.report.why.partition(":")[0]) == ("stopped", "ZeroDivisionError")
