// What the server does, second by second, from two readings of what it has counted.
import { api, ApiError } from "./api";
import { poll } from "./parts";

/** Some time. Rates are per second, times in seconds; `null` is not known. */
export interface Sample {
  /** In seconds since 1970. */
  time: number;
  requests: number | null;
  /** By class, from `1xx`. */
  statuses: (number | null)[];
  /** The mean response time. */
  mean: number | null;
  sent: number | null;
  received: number | null;
  connections: number | null;
}

/** The seconds between two readings. */
export const PACE = 2;

interface Reading {
  at: number;
  totals: any;
  /** What is counted of each request while somebody watches. */
  counted: any;
}

const CLASSES = ["1xx", "2xx", "3xx", "4xx", "5xx"];

/** What happened between two readings. */
function between(before: Reading, now: Reading): Sample {
  const per = (had: number, has: number, seconds: number) => Math.max(0, has - had) / seconds;
  const rate = (name: string) => per(before.totals[name], now.totals[name], now.at - before.at);
  // Somebody else may have begun to count anew.
  const [had, has] = [before.counted, now.counted];
  const isOne = has.counting && had.counting && has.seconds > had.seconds;
  const seconds = isOne ? has.seconds - had.seconds : 0;
  const requests = isOne ? has.total.requests - had.total.requests : 0;
  return {
    time: Date.now() / 1000, requests: rate("requests"), sent: rate("bytes_out"), received: rate("bytes_in"), connections: now.totals.connections,
    statuses: CLASSES.map((name) => (isOne ? per(had.total.statuses[name], has.total.statuses[name], seconds) : null)),
    mean: requests > 0 ? (has.total.time_seconds - had.total.time_seconds) / requests : null,
  };
}

/** Calls `each` every few seconds until `stop`. */
export function live(stop: AbortSignal, each: (sample: Sample) => void) {
  let before: Reading | null = null;
  poll(stop, PACE, async () => {
    try {
      const [{ totals }, counted] = await Promise.all([api("GET", "/status", { signal: stop }), api("GET", "/traffic?seconds=30", { signal: stop })]);
      const now = { at: performance.now() / 1000, totals, counted };
      if (before) each(between(before, now));
      before = now;
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      before = null;
    }
  });
}
