// Calls to this server: relative, so that a proxy may put it under any path, and with the token only ever in a header.

let token = "";

/** Use this bearer token from now on; "" is none. It is kept here alone, where other pages of this origin cannot read it. */
export function useToken(value) {
  token = value;
}

/** Whether a token is in use. */
export function hasToken() {
  return token !== "";
}

/** The server has rejected the request. `status` is the HTTP status. */
export class Rejected extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

/** The server has not answered. */
export class Unreachable extends Error {}

/** The JSON of an answer, null where there is none; throws Rejected or Unreachable, and what `signal` was aborted with. */
export async function call(path, { method = "GET", body, signal } = {}) {
  const headers = token ? { Authorization: `Bearer ${token}` } : {};
  let response, text;
  try {
    // Not "omit": a client certificate that the server asks for counts as a credential.
    const options = { credentials: "same-origin", cache: "no-store", redirect: "error" };
    response = await fetch(path, { method, body, headers, signal, ...options });
    text = await response.text();
  } catch (error) {
    if (signal?.aborted && signal.reason?.name === "AbortError") throw error;
    throw new Unreachable("The server does not answer.");
  }
  const answer = parse(text);
  if (!response.ok) throw new Rejected(response.status, answer?.error ?? `The server answered ${response.status}.`);
  return answer;
}

function parse(text) {
  try {
    return text ? JSON.parse(text) : null;
  } catch {
    return null;
  }
}
