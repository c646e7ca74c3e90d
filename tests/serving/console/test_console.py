"""The console in a real browser against real servers."""

import base64
import contextlib
import json
import re
import socket
import threading
import urllib.request

import numpy as np
import pytest
from playwright.sync_api import expect

from headrace.runtime.artifact.pipeline.splitting import cut_model
from tests.runtime.artifact.pipeline.models import deep_package

TOKENS = {name: f"{name}-0123456789abcdef" for name in ("infer", "admin", "metrics")}
HOSTILE = [
    "<img src=x onerror=\"window.hacked='img'\">",
    "<script>window.hacked='script'</script>",
    "\"'><svg onload=window.hacked=1>",
    "{{7*7}}${7*7}",
    "a very long label " * 20,
    "\u202eright to left",
    "&lt;b&gt;&amp;",
]


def _card(page, model: str):
    return page.locator(f'article[data-model="{model}"]')


def _classify(server, model: str, image: bytes, count: int = 5, token: str = "") -> list[dict]:
    request = urllib.request.Request(f"{server.url}/v1/classify/{model}?k={count}", data=image)
    if token:
        request.add_header("Authorization", f"Bearer {token}")
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.load(answer)["predictions"]


def _shown(page) -> list[str]:
    return page.locator("#labels li .name").all_text_contents()


@contextlib.contextmanager
def _traffic(server, photo, model="tiny"):
    """Requests, a few at a time, until the block ends."""
    over = threading.Event()

    def run(number: int) -> None:
        while not over.is_set():
            _classify(server, model, photo(number))
            over.wait(0.01)  # the browser needs the cores too

    threads = [threading.Thread(target=run, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        over.set()
        for thread in threads:
            thread.join()


def test_a_chosen_image_gets_the_labels_that_the_api_gives(server, visit, make_photo, tmp_path):
    page = visit(server).page
    path = tmp_path / "photo.png"
    path.write_bytes(make_photo(3))
    page.get_by_role("combobox", name="Model").select_option("tiny")
    page.get_by_label("Choose an image").set_input_files(path)
    expect(page.locator("#said")).to_have_text(re.compile(r"^tiny, version 1, answered in [\d.,]+ m?s$"))
    right = _classify(server, "tiny", make_photo(3))
    assert _shown(page) == [prediction["label"] for prediction in right]
    for prediction, share in zip(right, page.locator("#labels .share").all_text_contents(), strict=True):
        assert float(share.removesuffix(" %")) == pytest.approx(100 * prediction["probability"], abs=0.051)
    widths = page.locator("#labels .fill").evaluate_all("bars => bars.map(bar => bar.style.inlineSize)")
    assert [float(width.removesuffix("%")) / 100 for width in widths] == pytest.approx(
        [prediction["probability"] for prediction in right], abs=1e-4
    )
    expect(page.locator("#preview")).to_be_visible()
    page.get_by_role("spinbutton", name="Labels").fill("2")
    page.get_by_role("spinbutton", name="Labels").blur()
    expect(page.locator("#labels li")).to_have_count(2)
    expect(page.get_by_role("combobox", name="Model").locator("option")).to_have_text(["fragile", "tiny"])  # no companions
    expect(page.locator("#shell")).to_contain_text("/v1/classify/tiny?k=2")
    page.get_by_role("button", name="Send it again").click()
    expect(page.locator("#outcome")).to_have_attribute("aria-busy", "false")
    assert _shown(page) == [prediction["label"] for prediction in right[:2]]


def test_dropped_and_pasted_images(server, visit, make_photo):
    watched = visit(server)
    page = watched.page
    expect(page.get_by_role("combobox", name="Model")).not_to_have_value("")
    watched.allowed.append("400")
    for number, (event, field, target) in enumerate((("drop", "dataTransfer", "#drop"), ("paste", "clipboardData", "body"))):
        for content, good in ((make_photo(number), True), (b"no image", False)):
            page.evaluate(
                """([data, event, field, target]) => {
                  const files = new DataTransfer();
                  const bytes = Uint8Array.from(atob(data), (one) => one.charCodeAt(0));
                  files.items.add(new File([bytes], "photo.png", {type: "image/png"}));
                  const made = event === "drop"
                    ? new DragEvent("drop", {dataTransfer: files, bubbles: true, cancelable: true})
                    : new ClipboardEvent("paste", {clipboardData: files, bubbles: true, cancelable: true});
                  document.querySelector(target).dispatchEvent(made);
                }""",
                [base64.b64encode(content).decode(), event, field, target],
            )
            if good:
                expect(page.locator("#labels li")).to_have_count(5)
                expect(page.locator("#rejected")).to_be_hidden()
                model = page.get_by_role("combobox", name="Model").input_value()
                assert _shown(page) == [prediction["label"] for prediction in _classify(server, model, content)]
            else:
                expect(page.locator("#rejected")).to_contain_text("rejected the image (400)")
                expect(page.locator("#labels li")).to_have_count(0)
                expect(page.locator("#drop-hint")).to_contain_text("no preview")


@pytest.mark.parametrize("frontends", [0, 2])
def test_figures_move_under_traffic(models, launch, visit, make_photo, frontends):
    with launch(models, frontends=frontends) as server:
        page = visit(server).page
        expect(page.locator("#health")).to_have_text("ready")
        expect(page.locator("#span")).to_have_text("summed over 2 front ends and the engine" if frontends else "")
        tiny, still = _card(page, "tiny"), _card(page, "fragile")
        with _traffic(server, make_photo):
            expect(tiny.locator("dd.p99")).to_have_text(re.compile("ms|s$"))
            expect(tiny.locator("dd.rate")).to_have_text(re.compile(r"^[1-9][\d,.]*/s$"))
            expect(tiny.locator("dd.batch")).to_have_text(re.compile(r"^[1-8]"))
            expect(tiny.get_by_role("img", name=re.compile(r"^Latency.*p50 [\d.]+ m?s, p95 .*p99"))).to_be_visible()
            expect(tiny.get_by_role("img", name=re.compile(r"^Batch sizes.*share of each: \d: \d+ %"))).to_be_visible()
            expect(tiny.locator(".plot").first.locator("path.line0")).to_have_attribute("d", re.compile("L"))
        expect(tiny.locator("dd.rate")).to_have_text("0/s")
        expect(tiny.locator("dd.waiting")).to_have_text("0")
        expect(still.locator("dd.rate")).to_have_text("0/s")
        expect(still.locator("dd.p50")).to_have_text("\u2013")
        (counted,) = [m for m in json.load(urllib.request.urlopen(f"{server.url}/v1/figures"))["models"] if m["name"] == "tiny"]
        expect(tiny.locator("dd.rate")).to_have_attribute("title", f"{counted['answered']} answered, 0 failed in all")


def test_a_model_that_is_not_served_says_why(server, visit):
    card = _card(visit(server).page, "damaged")
    expect(card.locator("header .pill")).to_have_text("unavailable")
    expect(card.locator(".reason")).not_to_be_empty()
    expect(card.locator(".numbers")).to_be_hidden()


def test_models_are_loaded_and_unloaded(models, launch, visit, make_photo, tmp_path):
    with launch(models, model_control_mode="explicit", load_models=("tiny",)) as server:
        watched = visit(server)
        page = watched.page
        tiny, fragile, damaged = (_card(page, name) for name in ("tiny", "fragile", "damaged"))
        expect(tiny.locator("header .pill")).to_have_text("ready")
        expect(fragile.locator("header .pill")).to_have_text("unavailable")
        page.get_by_role("button", name="Load fragile", exact=True).click()
        expect(fragile.locator("header .pill")).to_have_text("ready")
        expect(fragile.get_by_role("status")).to_have_text("Loaded.")
        watched.allowed.append("400")
        page.get_by_role("button", name="Load damaged", exact=True).click()
        expect(damaged.get_by_role("status")).to_contain_text("Rejected (400): failed to load 'damaged'")
        page.get_by_role("button", name="Unload tiny", exact=True).click()
        asked = page.get_by_role("dialog", name="Unload tiny?")
        expect(asked.get_by_role("button", name="Keep it")).to_be_focused()
        page.keyboard.press("Enter")
        expect(asked).to_be_hidden()
        page.get_by_role("button", name="Unload tiny", exact=True).click()
        page.keyboard.press("Escape")
        expect(asked).to_be_hidden()
        expect(tiny.locator("header .pill")).to_have_text("ready")
        page.get_by_role("button", name="Unload tiny", exact=True).click()
        asked.get_by_role("button", name="Unload").click()
        expect(tiny.locator("header .pill")).to_have_text("unavailable")
        with pytest.raises(urllib.error.HTTPError, match="404"):
            _classify(server, "tiny", make_photo(1))
        expect(page.get_by_role("combobox", name="Model").locator("option")).to_have_text(["fragile"])
        page.get_by_role("button", name="Load tiny", exact=True).click()
        expect(tiny.locator("header .pill")).to_have_text("ready")
        page.get_by_role("button", name="Reload tiny", exact=True).click()
        expect(tiny.get_by_role("status")).to_have_text("Loaded.")
        assert _classify(server, "tiny", make_photo(1))


def test_no_buttons_without_repository_control(server, visit):
    page = visit(server).page
    expect(_card(page, "tiny").locator("header .pill")).to_have_text("ready")
    expect(page.get_by_role("button", name=re.compile("oad"))).to_have_count(0)


def test_tokens(models, launch, visit, make_photo, tmp_path):
    path = tmp_path / "tokens.toml"
    path.write_text("".join(f'{name} = ["{token}"]\n' for name, token in TOKENS.items()))
    with launch(models, token_file=path, model_control_mode="explicit", load_models=("*",)) as server:
        watched = visit(server)
        page = watched.page
        watched.allowed += ["401", "403"]
        field = page.get_by_label("Bearer token")

        def use(token: str) -> None:
            field.fill(token)
            page.get_by_role("button", name="Use it").click()

        expect(field).to_be_visible()
        expect(page.locator("article")).to_have_count(0)
        use("wrong-0123456789abcdef")
        expect(page.locator("#notice")).to_have_text("This token is not known to the server.")
        use(TOKENS["infer"])
        expect(page.locator("#notice")).to_be_hidden()
        expect(_card(page, "tiny").locator("header .pill")).to_have_text("ready")
        image = tmp_path / "photo.png"
        image.write_bytes(make_photo(5))
        page.get_by_label("Choose an image").set_input_files(image)
        expect(page.locator("#labels li")).to_have_count(5)
        model = page.get_by_role("combobox", name="Model").input_value()
        assert _shown(page) == [one["label"] for one in _classify(server, model, make_photo(5), token=TOKENS["infer"])]
        page.get_by_role("button", name="Reload tiny", exact=True).click()
        expect(_card(page, "tiny").get_by_role("status")).to_contain_text(
            "Rejected (403): this needs a token of category admin"
        )
        use(TOKENS["metrics"])
        expect(page.get_by_role("button", name="Reload tiny", exact=True)).to_be_hidden()
        expect(_card(page, "tiny").locator("dd.rate")).to_have_text("0/s")
        use(TOKENS["admin"])
        page.get_by_role("button", name="Reload tiny", exact=True).click()
        expect(_card(page, "tiny").get_by_role("status")).to_have_text("Loaded.")
        page.get_by_role("button", name="Send it again").click()
        expect(page.locator("#rejected")).to_contain_text("rejected the image (403): this needs a token of category infer")
        assert page.evaluate("[localStorage.length, sessionStorage.length, document.cookie, location.href]") == [
            0,
            0,
            "",
            watched.url,
        ]
        assert not [url for url in watched.requests if any(token in url for token in TOKENS.values())]
        page.reload()
        expect(field).to_have_value("")


def test_hostile_labels_stay_text(repository, launch, visit, make_photo, tmp_path):
    repository.package("tiny", labels=HOSTILE)
    with launch(repository.path) as server:
        page = visit(server, viewport={"width": 360, "height": 740}).page
        path = tmp_path / "<img src=x onerror=alert(1)>.png"
        path.write_bytes(make_photo(2))
        page.get_by_role("spinbutton", name="Labels").fill("7")
        page.get_by_label("Choose an image").set_input_files(path)
        expect(page.locator("#labels li")).to_have_count(7)
        assert sorted(_shown(page)) == sorted(HOSTILE)
        assert page.locator("#labels").locator("img, script, svg").count() == 0
        assert page.evaluate("window.hacked") is None
        assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")


def test_a_server_that_goes_and_comes_back(models, start, visit):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    server = start(models, http_port=port)
    watched = visit(server)
    page = watched.page
    watched.allowed.append("ERR_|503")
    expect(_card(page, "tiny").locator("dd.rate")).to_have_text("0/s")
    server.process.kill()
    expect(page.locator("#notice")).to_contain_text("does not answer")
    expect(page.locator("#health")).to_have_text("gone")
    server.process.wait()
    start(models, http_port=port)
    expect(page.locator("#notice")).to_be_hidden(timeout=60_000)
    expect(page.locator("#health")).to_have_text("ready")


def test_light_and_dark_wide_and_narrow(server, visit):
    colors = set()
    for scheme in ("light", "dark"):
        for width in (320, 1400):
            page = visit(server, color_scheme=scheme, viewport={"width": width, "height": 800}).page
            expect(_card(page, "tiny").locator("header .pill")).to_be_visible()
            assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth"), (scheme, width)
        colors.add(page.evaluate("getComputedStyle(document.body).backgroundColor"))
    assert len(colors) == 2


def test_text_has_the_contrast_that_wcag_asks_for(server, visit):
    """4.5 to 1 for text (WCAG 2.2, 1.4.3), 3 to 1 for lines that carry meaning (1.4.11), in both themes."""
    pairs = [
        *((text, ground) for text in ("ink", "quiet") for ground in ("card", "page", "faint")),
        *((state, f"{state}-back") for state in ("good", "wait", "bad")),
        ("accent", "card"),
        ("bad", "card"),
        ("on-accent", "accent"),
    ]
    for scheme in ("light", "dark"):
        page = visit(server, color_scheme=scheme).page
        names = {name for pair in pairs for name in pair} | {"line0", "line1", "line2"}
        read = """names => {
          const style = getComputedStyle(document.documentElement);
          return names.map((name) => [name, style.getPropertyValue("--" + name).trim()]);
        }"""
        luminance = {name: _luminance(value) for name, value in page.evaluate(read, sorted(names))}

        def contrast(one, other, luminance=luminance):
            low, high = sorted((luminance[one], luminance[other]))
            return (high + 0.05) / (low + 0.05)

        for one, other in pairs:
            assert contrast(one, other) >= 4.5, (scheme, one, other, contrast(one, other))
        for line in ("line0", "line1", "line2"):
            assert contrast(line, "card") >= 3, (scheme, line, contrast(line, "card"))


def _luminance(color: str) -> float:
    """Relative luminance of #rrggbb by WCAG's definition."""
    channels = np.array([int(color[at : at + 2], 16) for at in (1, 3, 5)]) / 255
    linear = np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)
    return float(linear @ [0.2126, 0.7152, 0.0722])


def test_everything_can_be_reached_by_keyboard(models, launch, visit):
    with launch(models, model_control_mode="explicit", load_models=("tiny",)) as server:
        page = visit(server).page
        expect(page.get_by_role("button", name="Reload tiny", exact=True)).to_be_visible()
        reached = []
        for _ in range(120):
            page.keyboard.press("Tab")
            found = page.evaluate("[document.activeElement].map(at => at.id || at.ariaLabel || at.textContent)[0]")
            if reached and found == reached[0]:
                break
            reached.append(found)
        for wanted in ("api", "model", "count", "file", "Reload tiny", "Unload tiny", "Load fragile", "The same from a shell"):
            assert wanted in reached, reached
        assert all(
            page.locator("input, select, button").evaluate_all(
                "all => all.map(one => one.labels?.length || one.ariaLabel || one.textContent)"
            )
        )


def test_quantiles_and_rates_of_the_page(server, visit):
    """The page's own arithmetic, beside numpy's."""
    page = visit(server).page
    random = np.random.default_rng(3)
    seconds = random.lognormal(-4, 1, 2000)
    bounds = json.load(urllib.request.urlopen(f"{server.url}/v1/figures"))["latency_bounds"]
    counts = np.bincount(np.searchsorted(bounds, seconds), minlength=len(bounds) + 1).tolist()
    found = page.evaluate(
        """async ([bounds, counts]) => {
          const {History, quantile, roundUp} = await import("/console/history.js");
          const none = counts.map(() => 0);
          const history = new History(bounds);
          const look = (answered, failed, latencies, batches) => ({answered, failed, latencies, batches});
          history.add(100, look(0, 0, none, {}));
          history.add(102, look(2000, 10, counts, {1: 4, 8: 4}));
          history.miss();
          history.add(104, look(2000, 10, counts, {1: 4, 8: 4}));
          history.add(120, look(2000, 10, counts, {1: 4, 8: 4}));
          const restarted = new History(bounds);
          restarted.add(1, look(5, 0, counts, {}));
          restarted.add(2, look(3, 0, none, {}));
          return [
            [0.5, 0.95, 0.99].map((share) => quantile(bounds, counts, share)),
            history.points.map((point) => point && [point.answered, point.failed, point.rows]),
            history.latest().quantiles,
            restarted.points.length,
            [0.003, 1, 1.01, 20, 99, 101].map(roundUp),
          ];
        }""",
        [bounds, counts],
    )
    assert found[0] == pytest.approx(np.quantile(seconds, [0.5, 0.95, 0.99]), rel=0.13)
    assert found[1] == [[None, None, None], [1000, 5, 4.5], None, [0, 0, 4.5], [0, 0, None]]
    assert found[2] is None
    assert found[3] == 1
    assert found[4] == pytest.approx([0.005, 1, 2, 20, 100, 200])


def test_companions_are_in_the_card_of_their_model(server, visit):
    page = visit(server).page
    expect(_card(page, "tiny").locator("header .pill")).to_have_text("ready")
    assert page.locator("article.model").evaluate_all("cards => cards.map(card => card.dataset.model)") == [
        "fragile",
        "tiny",
        "damaged",
    ]
    family = _card(page, "tiny").locator("details.family")
    family.locator("summary").click()
    expect(family.locator("li b")).to_have_text(["tiny_classify", "tiny_decode"])
    expect(family.locator("li .pill")).to_have_text(["ready", "ready"])


def test_the_stages_of_a_pipeline_are_in_its_card(launch, visit, tmp_path):
    cut_model(deep_package(tmp_path), tmp_path / "out", 2)
    with launch(tmp_path / "out") as server:
        about = _card(visit(server).page, "deep").locator(".facts-line")
        for number in range(2):
            expect(about).to_contain_text(
                re.compile(rf"stage {number} [0-9.<]+ % busy, [0-9.<]+ % starved, [0-9.<]+ % blocked")
            )


def test_the_operators_first_questions(models, launch, visit, make_photo, tmp_path):
    with launch(models, model_control_mode="explicit", load_models=("tiny",)) as server:
        watched = visit(server)
        page = watched.page
        expect(page.locator("#tile-healthy .big")).to_have_text("Healthy")  # what nobody asked for is not missing
        expect(page.locator("#tile-full .big")).to_have_text(re.compile(r"^\d+ %$"))
        expect(page.locator("#tile-full .quiet")).to_have_text(
            re.compile(r"^of \d+ cores; [\d.,]+ [MG]iB of memory, .* free; 0 w")
        )
        with _traffic(server, make_photo):
            expect(page.locator("#tile-fast .big")).to_have_text(re.compile(r"^[1-9][\d,.]*/s$"))
            expect(page.locator("#tile-fast .quiet")).to_have_text(re.compile(r"^Half within [\d.]+ m?s, 99 of 100 within"))
        for _ in range(20):
            with pytest.raises(urllib.error.HTTPError, match="400"):
                _classify(server, "tiny", b"no image")
        expect(page.locator("#tile-healthy .big")).to_have_text("Look here")
        expect(page.locator("#tile-healthy .quiet")).to_contain_text("of the requests fail")
        failures = _card(page, "tiny").locator("details.failures")
        failures.locator("summary").click()
        expect(failures.locator("li")).to_have_text(["Wrong request 20"])
        failures.get_by_role("link", name="Wrong request").click()
        expect(page.locator("#word-other dd")).to_be_in_viewport()


def test_a_model_that_should_serve_and_does_not_is_told_first(server, visit):
    page = visit(server).page
    expect(page.locator("#tile-healthy .big")).to_have_text("Look here")
    expect(page.locator("#tile-healthy .quiet")).to_have_text("damaged does not serve.")


@pytest.mark.parametrize("frontends", [0, 2])
def test_history_outlives_the_page_and_the_model(repository, launch, visit, make_photo, frontends):
    repository.package("tiny")
    control = {"model_control_mode": "explicit", "load_models": ("*",)}
    with launch(repository.path, frontends=frontends, **control) as server:
        page = visit(server).page
        line = _card(page, "tiny").locator(".plot").first.locator("path.line0")
        with _traffic(server, make_photo):
            page.wait_for_timeout(11_000)  # the server adds a point each five seconds
        repository.package("tiny", scale=2)  # which is another model under the same name
        page.get_by_role("button", name="Reload tiny", exact=True).click()
        expect(_card(page, "tiny").get_by_role("status")).to_have_text("Loaded.")
        page.reload()
        expect(line).to_have_attribute("d", re.compile("L"))
        points = json.load(urllib.request.urlopen(f"{server.url}/v1/history"))["models"]["tiny"]["hour"]
        assert sum(answered for _, _, answered, *_ in points) > 0
        _card(page, "tiny").get_by_role("radio", name="1 hour").check()
        expect(line).to_have_attribute("d", re.compile("L"), timeout=30_000)  # two points
        expect(page.locator("#events")).to_contain_text("version 1 is ready")


def test_each_step_of_the_preprocessing_is_drawn(server, visit, make_photo, tmp_path):
    page = visit(server).page
    path = tmp_path / "photo.png"
    path.write_bytes(make_photo(3))
    page.get_by_role("combobox", name="Model").select_option("tiny")
    page.get_by_label("Choose an image").set_input_files(path)
    steps = page.locator("#steps li")
    expect(steps.locator("b")).to_have_text(["decoded", "resized", "cropped to its center", "as the model sees it"])
    sizes = page.locator("#steps img").evaluate_all("all => all.map(one => [one.naturalWidth, one.naturalHeight])")
    assert sizes[2:] == [[16, 16], [16, 16]]
    expect(steps.nth(3).locator(".quiet")).to_contain_text("mean 0.5, 0.4, 0.3, std 0.2, 0.25, 0.3")


def test_two_versions_answer_the_same_image(repository, launch, visit, make_photo, tmp_path):
    repository.package("tiny")
    repository.add("tiny", 2, scale=-1.0)
    repository.configure("tiny", "version_policy { all {} }")
    path = tmp_path / "photo.png"
    path.write_bytes(make_photo(3))
    with launch(repository.path) as server:
        page = visit(server).page
        expect(_card(page, "tiny").locator(".version")).to_have_text("versions 2, 1")
        page.get_by_role("combobox", name="Compare with").select_option("tiny, version 1")
        page.get_by_label("Choose an image").set_input_files(path)
        expect(page.locator("#said")).to_contain_text("tiny, version 2")
        expect(page.locator("#other-said")).to_contain_text("tiny, version 1")
        first, second = (page.locator(f"#{name} li .name").first.inner_text() for name in ("labels", "other-labels"))
        assert first != second  # its scores have the other sign
        expect(page.locator("#verdict")).to_contain_text(f"They differ: {first} against {second}.")
        page.get_by_role("combobox", name="Compare with").select_option("tiny")
        expect(page.locator("#verdict")).to_contain_text(f"Both say {first}.")


def test_no_violation_that_axe_knows(models, launch, visit, make_photo, tmp_path):
    """https://github.com/dequelabs/axe-core, WCAG 2.2 A and AA and its best practices."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="pip install axe-playwright-python").Axe()
    path = tmp_path / "photo.png"
    path.write_bytes(make_photo(3))
    with launch(models, model_control_mode="explicit", load_models=("tiny", "damaged")) as server:
        for scheme, width in (("light", 1280), ("dark", 400)):
            watched = visit(server, color_scheme=scheme, viewport={"width": width, "height": 900})
            page = watched.page
            expect(_card(page, "tiny").locator("header .pill")).to_have_text("ready")
            page.get_by_label("Choose an image").set_input_files(path)
            expect(page.locator("#steps li")).to_have_count(4)
            page.locator("details").evaluate_all("all => all.forEach(one => { one.open = true; })")
            expect(page.locator("article[data-model=tiny] .plan .chosen li")).to_have_count(1)
            found = axe.run(page).response["violations"]
            assert [(one["id"], one["nodes"][0]["html"]) for one in found] == []
            page.get_by_role("button", name="Unload tiny", exact=True).click()
            assert axe.run(page).response["violations"] == []
