// Looks at the server every second and shows what it says; asks for a token where one is needed.

import { Rejected, call, hasToken, useToken } from "./api.js";
import { Classifier } from "./classify.js";
import { Models } from "./models.js";

const PAUSE = 1000;
const HIDDEN_PAUSE = 10000; // nobody looks
const PATIENCE = 10000;

const at = (id) => document.getElementById(id);
const classifier = new Classifier();
const models = new Models(at("list"), at("none"));
let timer = 0;

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
  at("span").textContent = fronts ? `summed over ${fronts} front end${fronts > 1 ? "s" : ""} and the engine` : "";
  models.update(rows, stats);
  classifier.offer(stats.models);
}

function fail(error) {
  document.body.classList.add("stale");
  models.miss();
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
  const pill = at("health");
  if (pill.textContent !== text) pill.textContent = text;
  pill.dataset.state = state;
}

function notice(text) {
  if (at("notice").textContent !== text) at("notice").textContent = text;
  at("notice").hidden = !text;
}

async function about() {
  const found = await call("v2").catch(() => null);
  at("about").textContent = found ? `${found.version} · ${location.host}` : location.host;
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

about();
look();
