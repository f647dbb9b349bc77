// Requests to the server that sent this page. Addresses are relative, so that the page also works
// behind a proxy that serves it from a folder.

/** What went wrong, in a sentence for the user. */
export class ServerError extends Error {
  /** `retryAfter`: seconds after which the server wants to be asked again; NaN if never. */
  constructor(message, retryAfter = NaN) {
    super(message[0].toUpperCase() + message.slice(1) + (/[.!?]$/.test(message) ? "" : "."));
    this.retryAfter = retryAfter;
  }
}

export const get = (path) => ask(path, {});

/** Send fields as JSON. An aborted `signal` makes this throw an AbortError. */
export const post = (path, fields, signal) =>
  ask(path, {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify(fields),
    signal,
  });

async function ask(path, options) {
  let response, answer;
  try {
    response = await fetch(path, options);
    answer = await response.json();
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ServerError(
      response
        ? `The answer of the server can't be read (status ${response.status})`
        : "The server doesn't answer. Is it still running?",
    );
  }
  if (response.ok) return answer;
  const seconds = parseInt(response.headers.get("Retry-After"), 10);
  throw new ServerError(answer.error || `The server answers ${response.status}`, seconds);
}
