// Asks the service, and tells its refusals in its own words. It asks once: whoever wants to ask again decides that.

import type { Session } from "./types";

const PATIENCE = 15_000;

/** A refusal of the service, or that it could not be asked (`status` 0). */
export class Refused extends Error {
  constructor(
    readonly status: number,
    readonly code: string,
    detail: string,
    readonly hint: string | null = null,
    /** Seconds after which it makes sense to ask again, where the service said so. */
    readonly retryAfter: number | null = null,
    /** Whether a change may have been made although this came instead of an answer. */
    readonly unknown = false,
  ) {
    super(detail);
  }
}

let csrfToken: string | null = null;
const refusalWatchers = new Set<(refused: Refused) => void>();

/** Be told of each refusal that concerns the whole page: 401, 429 and 503. Returns how to stop that. */
export function onRefusal(watcher: (refused: Refused) => void): () => void {
  refusalWatchers.add(watcher);
  return () => refusalWatchers.delete(watcher);
}

export function get<T>(path: string, query: Record<string, string | number> = {}): Promise<T> {
  const pairs = Object.entries(query).map(([name, value]) => [name, String(value)]);
  const text = pairs.length ? `?${new URLSearchParams(pairs)}` : "";
  return ask<T>("GET", path + text);
}

/** A request that changes something, with what proves that this page made it. */
export function post<T>(path: string, body: unknown): Promise<T> {
  return ask<T>("POST", path, body);
}

/** Who is signed in; it also renews the sign-in. */
export async function readSession(): Promise<Session> {
  return keep(await ask<Session>("GET", "/ui/session"));
}

export async function signIn(credential: string): Promise<Session> {
  keep(await ask<Session>("POST", "/ui/session", { credential }));
  return readSession();
}

export async function signOut(): Promise<void> {
  await ask("DELETE", "/ui/session");
}

function keep(session: Session): Session {
  csrfToken = session.csrfToken ?? csrfToken;
  return session;
}

async function ask<T>(method: string, path: string, body?: unknown): Promise<T> {
  const headers: Record<string, string> = { accept: "application/json" };
  if (body !== undefined) headers["content-type"] = "application/json";
  if (method !== "GET" && csrfToken) headers["leased-csrf"] = csrfToken;
  let answer: Response;
  try {
    answer = await fetch(path, {
      method,
      headers,
      cache: "no-store",
      credentials: "same-origin",
      signal: AbortSignal.timeout(PATIENCE),
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    });
  } catch {
    throw new Refused(0, "", "the service does not answer", "is it running, and can this machine reach it?", null, method !== "GET");
  }
  const found: unknown = await answer.json().catch(() => null);
  if (answer.ok) return found as T;
  const refused = readProblem(answer.status, found, method);
  if ([401, 429, 503].includes(answer.status)) for (const watcher of refusalWatchers) watcher(refused);
  throw refused;
}

function readProblem(status: number, found: unknown, method: string): Refused {
  const problem = (found && typeof found === "object" ? found : {}) as Record<string, unknown>;
  const text = (name: string): string | null => (typeof problem[name] === "string" ? (problem[name] as string) : null);
  const seconds = typeof problem.retryAfter === "number" ? problem.retryAfter : null;
  const unknown = method !== "GET" && status >= 500 && problem.applied !== false;
  const detail = text("detail") ?? `the service answered with HTTP status ${status}`;
  return new Refused(status, text("code") ?? "", detail, text("hint"), seconds, unknown);
}
