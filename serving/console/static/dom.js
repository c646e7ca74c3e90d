// Elements with text, and words that lead to what they mean.

/** An element with a class and a text, which is only ever text. */
export function element(name, className = "", text = "", ...children) {
  const made = document.createElement(name);
  if (className) made.className = className;
  made.textContent = text;
  made.append(...children);
  return made;
}

/** The element of that id. */
export const at = (id) => document.getElementById(id);

/** Change a text where it is another, so that nothing is read out twice. */
export function write(target, text) {
  if (target.textContent !== text) target.textContent = text;
}

/** A word of `WORDS` that leads to its meaning below. */
export function term(key, text = WORDS[key][0]) {
  const link = element("a", "term", text);
  link.href = `#word-${key}`;
  return link;
}

/** Every word that the page uses, and what it means. */
export const WORDS = {
  health: ["Health", "Healthy: the server answers, every model that should serve does, and less than one request in a hundred failed in the last ten seconds."],
  answered: ["Answered", "Requests answered per second, averaged between two looks at the server, which are a second apart."],
  failed: ["Failed", "Requests that ended without an answer. The reasons are counted apart: rejected, canceled, failed in the model, or wrong."],
  p50: ["p50, p95, p99", "Half of the requests, 95 of a hundred, and 99 of a hundred were answered within this time, from their arrival at the server to their answer there, in the last ten seconds. The network is not in it."],
  batch: ["Mean batch", "How many images are computed together. Larger batches give more images a second, and each waits longer."],
  waiting: ["Waiting", "Requests that are there and do not run yet: those whose image is being decoded, and those in the queue. When the queue is full, more are rejected with status 503."],
  cache: ["Cache hits", "Requests that were answered from the response cache, since the same input had come before. The cache is off unless the server was started with --response-cache-bytes."],
  cpu: ["Processor", "The share of the processor cores, of those that this server may use, that its processes used since the last look. Near 100 % it answers no more requests a second."],
  memory: ["Memory", "Resident memory of the server's processes. What several of them share is counted in each."],
  plan: ["Plan", "What a model computes with for each batch size: a library and a precision. Candidates are measured on this machine, and the quickest that answers as the original does is chosen. Without a plan for this machine the portable graph serves in fp32."],
  precision: ["Precision", "The numbers that a model computes in. fp32 is that of training; bf16, fp16, fp8 and int8 are smaller, quicker, and answer a few images otherwise."],
  agreement: ["Agreement", "The share of images for which a plan gives the same answer as the original model: measured on images when the plan was made, and, with --shadow, on a sample of the images that are answered here."],
  interval: ["Interval", "Between these two the agreement on all images lies, with a confidence of 95 %, at every moment of the service at once."],
  accepted: ["Accepted", "The least agreement with which the plan stays. When the interval lies below it, the plan is taken back, and the model serves in fp32."],
  instances: ["Instances", "Sessions of a model that compute side by side."],
  companion: ["Companions", "Models that belong to another: one decodes images to its input, one does both in one call. They exist for clients of Triton; here they serve with their model and are loaded and unloaded with it."],
  rejected: ["Rejected", "The queue was full, or the answer would have come after the request's deadline. More replicas, or fewer requests."],
  canceled: ["Canceled", "The client went away, or gave up, before its answer."],
  backend: ["Failed in the model", "The model failed on the request; the server's log says why."],
  other: ["Wrong request", "The request did not fit the model: no image, a wrong shape, an unknown tensor."],
};
