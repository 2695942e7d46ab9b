// Requests to the admin API. The token of the session stays in the storage of this tab: there is no cookie that a page of another
// site could have the browser send.
import { t } from "./text";

export interface Session {
  name: string;
  role: "read" | "operate" | "configure";
  sites: string[] | null;
}

let session: Session | null = null;
let token = stored();
/** The operations of the server by its OpenAPI description, such as `GET /status`. */
let operations = new Set<string>();

const TOKEN = "apus.token";
const ROLES = ["read", "operate", "configure"];

function stored(): string | null {
  try {
    return sessionStorage.getItem("apus.token");
  } catch {
    return null;
  }
}

function keep(found: string | null) {
  token = found;
  try {
    if (found === null) sessionStorage.removeItem(TOKEN);
    else sessionStorage.setItem(TOKEN, found);
  } catch {
    // Without storage, the session ends with the page.
  }
}

export function currentSession(): Session | null {
  return session;
}

export function may(role: "operate" | "configure"): boolean {
  return session !== null && ROLES.indexOf(session.role) >= ROLES.indexOf(role);
}

/** Whether the session is for all sites, and not only for some. */
export function isForAllSites(): boolean {
  return session?.sites === null;
}

/** A response that is no success; 0: there was none. */
export class ApiError extends Error {
  constructor(readonly status: number, message: string, readonly retryAfter: number | null = null) {
    super(message);
  }
}

export interface Options {
  body?: unknown;
  headers?: Record<string, string>;
  signal?: AbortSignal;
}

let onLogOut: () => void = () => {};

/** What to do when the session has ended. */
export function whenLoggedOut(then: () => void) {
  onLogOut = then;
}

/** Reads what the server offers: a server of another version than the page may have less, or more. */
export async function discover() {
  const { paths } = await api("GET", "/openapi.json");
  operations = new Set(Object.entries(paths as Record<string, object>).flatMap(([path, methods]) => Object.keys(methods).map((method) => `${method.toUpperCase()} ${path}`)));
}

/** Whether the server has an operation, such as `GET /status`. */
export function offers(operation: string): boolean {
  return operations.has(operation);
}

/** Takes up the session of this tab, if there is one. */
export async function resume(): Promise<boolean> {
  if (token === null) return false;
  try {
    session = await api("GET", "/session");
    return true;
  } catch (error) {
    if (!(error instanceof ApiError && error.status === 401)) throw error;
    keep(null);
    return false;
  }
}

export async function logIn(body: { name: string; password: string } | { code: string }) {
  keep(null);
  const found = await api("POST", "/session", { body });
  keep(found.token);
  session = found;
}

export async function logOut() {
  await api("DELETE", "/session");
  keep(null);
  session = null;
}

export async function api(method: string, path: string, options: Options = {}): Promise<any> {
  return parsed(await (await send(method, path, options)).text());
}

function parsed(text: string): any {
  try {
    return text ? JSON.parse(text) : null;
  } catch {
    return null;
  }
}

async function send(method: string, path: string, options: Options): Promise<Response> {
  const headers: Record<string, string> = { Accept: "application/json", ...options.headers };
  if (token !== null) headers.Authorization = `Bearer ${token}`;
  if (options.body !== undefined) headers["Content-Type"] = "application/json";
  let response: Response;
  try {
    response = await fetch(`/api/v1${path}`, {
      method, headers, signal: options.signal, cache: "no-store", credentials: "omit", redirect: "error",
      body: options.body === undefined ? undefined : JSON.stringify(options.body),
    });
  } catch (error) {
    if (options.signal?.aborted) throw error;
    throw new ApiError(0, t("The server cannot be reached."));
  }
  if (response.ok) return response;
  const problem = parsed(await response.text());
  if (response.status === 401 && session) {
    session = null;
    keep(null);
    onLogOut();
  }
  const retry = Number(response.headers.get("retry-after"));
  const message = problem?.detail ?? problem?.title ?? t("The server refused that with status {status}.", { status: response.status });
  throw new ApiError(response.status, String(message), retry > 0 ? retry : null);
}

/** Reads an event stream until it ends: the browser's own reader of them cannot send a token. */
export async function events(path: string, signal: AbortSignal, each: (name: string, data: any) => void): Promise<void> {
  const response = await send("GET", path, { signal, headers: { Accept: "text/event-stream" } });
  const reader = response.body!.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  let name = "message";
  let data: string[] = [];
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const lines = (rest + value).split(/\r\n|\n|\r(?!$)/);
    rest = lines.pop() ?? "";
    for (const line of lines) {
      if (line.startsWith("event:")) name = line.slice(6).trim();
      else if (line.startsWith("data:")) data.push(line.slice(line[5] === " " ? 6 : 5));
      else if (line === "") {
        const found = data.length > 0 ? parsed(data.join("\n")) : null;
        if (found !== null) each(name, found);
        name = "message";
        data = [];
      }
    }
  }
}
