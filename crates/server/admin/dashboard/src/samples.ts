// What the server does: from its history, or else from two readings of what it has counted.
import { api, ApiError, events, offers } from "./api";
import { poll } from "./parts";

/** Some time. Rates are per second, times in seconds; `null` is not known. */
export interface Sample {
  /** When it begins, in seconds since 1970. */
  time: number;
  requests: number | null;
  /** By class, from `1xx`. */
  statuses: (number | null)[];
  mean: number | null;
  p50: number | null;
  p90: number | null;
  p99: number | null;
  sent: number | null;
  received: number | null;
  connections: number | null;
  /** The cores that the server used. */
  cores: number | null;
  memory: number | null;
}

/** The seconds between two readings. */
export const PACE = 2;

/** The steps of the history, with their seconds. */
export const STEPS = { second: 1, minute: 60, hour: 3600 };

const CLASSES = ["1xx", "2xx", "3xx", "4xx", "5xx"];

/** A stretch of the history: samples, and of the busiest sites their requests per second. */
export interface Stretch {
  samples: Sample[];
  sites: [string, (number | null)[]][];
}

/** A step of the history, by the names of its values. */
function sample(time: number, value: (name: string) => number | null): Sample {
  const seconds = value("seconds");
  const rate = (name: string) => {
    const found = value(name);
    return found === null || !seconds ? null : found / seconds;
  };
  return {
    time, requests: rate("requests"), statuses: CLASSES.map((name) => rate(`requests_${name}`)),
    mean: value("duration_seconds_mean"), p50: value("duration_seconds_p50"), p90: value("duration_seconds_p90"), p99: value("duration_seconds_p99"),
    sent: rate("sent_bytes"), received: rate("received_bytes"), connections: value("connections"), cores: rate("cpu_seconds"), memory: value("memory_bytes"),
  };
}

/** What the server did from some time on. */
export async function history(step: keyof typeof STEPS, from: number, stop: AbortSignal): Promise<Stretch> {
  const found = await api("GET", `/history?step=${step}&from=${Math.floor(from)}`, { signal: stop });
  const series = found.series as Record<string, (number | null)[]>;
  const known = series.seconds ?? [];
  const samples = known.map((_, index) => sample(found.start + index * found.step_seconds, (name) => series[name]?.[index] ?? null));
  const sites = Object.entries(found.sites as Record<string, { requests: (number | null)[] }>).map(([name, { requests }]): [string, (number | null)[]] =>
    [name, requests.map((value, index) => (value === null || !known[index] ? null : value / known[index]!))]);
  return { samples, sites };
}

interface Reading {
  at: number;
  totals: any;
  /** What is counted of each request while somebody watches. */
  counted: any;
}

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
    p50: null, p90: null, p99: null, cores: null, memory: null,
  };
}

/** The time before from the history, then each second as it ends. After a connection is lost, what was missed is read first. */
async function stream(stop: AbortSignal, begin: number, each: (samples: Sample[], step: number) => void) {
  let from = begin;
  const add = (samples: Sample[]) => {
    const next = samples.filter((one) => one.time >= from);
    if (next.length === 0) return;
    from = next[next.length - 1].time + 1;
    each(next, STEPS.second);
  };
  while (!stop.aborted) {
    try {
      add((await history("second", from, stop)).samples);
      await events("/live", stop, (name, second) => {
        if (name === "sample") add([sample(second.time, (name) => second.series[name] ?? null)]);
      });
    } catch (error) {
      if (stop.aborted) return;
      if (!(error instanceof ApiError || error instanceof TypeError)) throw error;
    }
    await new Promise((done) => setTimeout(done, 2000));
  }
}

/** Calls `each` with new samples every few seconds until `stop`; the first ones are of the time before, if the server has a history. */
export function live(stop: AbortSignal, seconds: number, each: (samples: Sample[], step: number) => void) {
  if (offers("GET /history")) {
    let from = Date.now() / 1000 - seconds;
    if (offers("GET /live")) return void stream(stop, from, each);
    return poll(stop, PACE, async () => {
      const { samples } = await history("second", from, stop).catch(() => ({ samples: [] }));
      if (samples.length === 0) return;
      from = samples[samples.length - 1].time + 1;
      each(samples, STEPS.second);
    });
  }
  let before: Reading | null = null;
  return poll(stop, PACE, async () => {
    try {
      const [{ totals }, counted] = await Promise.all([api("GET", "/status", { signal: stop }), api("GET", "/traffic?seconds=30", { signal: stop })]);
      const now = { at: performance.now() / 1000, totals, counted };
      if (before) each([between(before, now)], PACE);
      before = now;
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      before = null;
    }
  });
}
