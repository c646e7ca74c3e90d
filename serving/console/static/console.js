// Looks at the server every second and shows what it says; asks for a token where one is needed.

import { Rejected, call, hasToken, useToken } from "./api.js";
import { Classifier } from "./classify.js";
import { WORDS, at, element, write } from "./dom.js";
import { Models } from "./models.js";
import { Overview } from "./overview.js";

const PAUSE = 1000;
const HIDDEN_PAUSE = 10000; // nobody looks
const PATIENCE = 10000;
const HISTORY_PAUSE = 10; // seconds between two looks at what the server remembers

const classifier = new Classifier();
const models = new Models(at("list"), at("none"));
const overview = new Overview();
let timer = 0;
let remembered = 0;

/** The answer, or null where the token is for something else. */
async function allowed(promise) {
  try {
    return await promise;
  } catch (error) {
    if (error instanceof Rejected && error.status === 403) return null;
    throw error;
  }
}

async function look() {
  try {
    const signal = AbortSignal.timeout(PATIENCE);
    const index = allowed(call("v2/repository/index", { method: "POST", body: "{}", signal }));
    const [stats, rows] = await Promise.all([call("v1/figures", { signal }), index]);
    show(stats, rows);
    if (stats.time - remembered >= HISTORY_PAUSE || stats.time < remembered) {
      remembered = stats.time;
      const history = await call("v1/history", { signal });
      models.remember(history);
      overview.events(history.events);
    }
  } catch (error) {
    fail(error);
  }
  clearTimeout(timer); // of a look that ran at the same time
  timer = setTimeout(look, document.hidden ? HIDDEN_PAUSE : PAUSE);
}

function show(stats, rows) {
  notice("");
  at("access").hidden = !hasToken();
  document.body.classList.remove("stale");
  health(stats.ready ? "ready" : "not ready", stats.ready ? "READY" : "LOADING");
  const fronts = stats.front_ends;
  write(at("span"), fronts ? `summed over ${fronts} front end${fronts > 1 ? "s" : ""} and the engine` : "");
  overview.update(stats, models.update(rows, stats));
  classifier.offer(stats.models);
}

function fail(error) {
  document.body.classList.add("stale");
  models.miss();
  remembered = 0;
  if (!(error instanceof Rejected)) {
    health("gone", "UNAVAILABLE");
    notice("The server does not answer. This page tries again every second.");
  } else if (error.status === 401) {
    at("access").hidden = false;
    at("api").hidden = true; // the browser would ask for it without a token
    health("locked", "UNAVAILABLE");
    notice(hasToken() ? "This token is not known to the server." : "");
  } else {
    health("not ready", "LOADING");
    notice(`${error.status === 503 ? "Not ready" : "The server rejected the request for live stats"} (${error.status}): ${error.message}`);
  }
}

function health(text, state) {
  write(at("health"), text);
  at("health").dataset.state = state;
}

function notice(text) {
  write(at("notice"), text);
  at("notice").hidden = !text;
}

async function about() {
  const found = await call("v2").catch(() => null);
  at("about").textContent = found ? `${found.version} · ${location.host}` : location.host;
}

function words() {
  for (const [key, [name, meaning]] of Object.entries(WORDS)) {
    const pair = element("div", "", "", element("dt", "", name), element("dd", "", meaning));
    pair.id = `word-${key}`;
    at("words").append(pair);
  }
}

at("access").addEventListener("submit", (event) => {
  event.preventDefault();
  useToken(at("token").value.trim());
  classifier.shell();
  about();
  look();
});
document.addEventListener("visibilitychange", () => {
  if (!document.hidden) look();
});

words();
about();
look();
