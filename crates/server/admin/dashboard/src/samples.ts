// What the server counts, second by second: live, from its history, or else from two readings of the status.
import { api, ApiError, currentSession, events, status } from "./api";
import { poll } from "./parts";

/** One second, minute or hour. Rates are per second, times in seconds. */
export interface Sample {
  time: number;
  requests: number | null;
  statuses: (number | null)[];
  p50: number | null;
  p90: number | null;
  p99: number | null;
  sent: number | null;
  received: number | null;
  connections: number | null;
}

/** The members of a record, those of nested ones after the name of it: `latency_p50`. */
function flat(record: any, prefix = ""): Record<string, any> {
  const found: Record<string, any> = {};
  for (const [name, value] of Object.entries(record ?? {})) {
    if (value && typeof value === "object" && !Array.isArray(value)) Object.assign(found, flat(value, `${prefix}${name}_`));
    else found[prefix + name] = value;
  }
  return found;
}

const NAMES: [string, RegExp][] = [
  ["requests", /^(http_)?requests?(_rate|_total|_per_second)?$/],
  ["1", /(^|_)(1xx|informational)$/], ["2", /(^|_)(2xx|successful)$/], ["3", /(^|_)(3xx|redirections?)$/],
  ["4", /(^|_)(4xx|client_errors?)$/], ["5", /(^|_)(5xx|server_errors?)$/],
  ["p50", /p50|median/], ["p90", /p9[05](?!\d)/], ["p99", /p99(?!\d)/],
  ["sent", /^bytes_(sent|out)$|^sent_bytes$/], ["received", /^bytes_(received|in)$|^received_bytes$/],
  ["connections", /^(open_)?connections(_open)?$/],
];

function unit(name: string): number {
  return /_us$|micro/.test(name) ? 1e-6 : /_ms$|milli/.test(name) ? 1e-3 : 1;
}

/** The value of a record by one of the names above. */
function pick(names: Record<string, any>, wanted: string): { value: any; unit: number } {
  const pattern = NAMES.find(([name]) => name === wanted)![1];
  const name = Object.keys(names).find((one) => pattern.test(one));
  return name === undefined ? { value: null, unit: 1 } : { value: names[name], unit: unit(name) };
}

function number(value: any): number | null {
  return typeof value === "number" && isFinite(value) ? value : null;
}

function sample(record: any, at: (value: any) => any, time: number, seconds: number): Sample {
  const names = flat(record);
  const get = (name: string) => {
    const { value, unit } = pick(names, name);
    const found = number(at(value));
    return found === null ? null : found * unit;
  };
  const per = (name: string) => {
    const found = get(name);
    return found === null ? null : found / seconds;
  };
  return {
    time, requests: per("requests"), statuses: ["1", "2", "3", "4", "5"].map(per), p50: get("p50"), p90: get("p90"), p99: get("p99"),
    sent: per("sent"), received: per("received"), connections: get("connections"),
  };
}

export const STEPS = { second: 1, minute: 60, hour: 3600 };

/** The values of a stretch of time, of the server or of one site. */
export async function history(step: keyof typeof STEPS, seconds: number, site: string | null, signal: AbortSignal): Promise<Sample[]> {
  const to = Math.floor(Date.now() / 1000);
  const found = await api("GET", `/history?step=${step}&from=${to - seconds}&to=${to}`, { signal });
  const series = (site === null ? found.series : found.sites?.[site]) ?? {};
  const width = typeof found.step === "number" ? found.step : STEPS[step];
  const columns = Object.values(flat(series)).filter(Array.isArray) as any[][];
  const length = Math.max(0, ...columns.map((column) => column.length));
  return Array.from({ length }, (_, index) =>
    sample(series, (column) => (Array.isArray(column) ? column[index] : null), found.start + index * width, width));
}

/** Calls `each` every second until `stop`. `how`: whether samples come live or are read from the status. */
export async function live(stop: AbortSignal, each: (sample: Sample, how: "live" | "status") => void) {
  if (!currentSession()) return readings(stop, each);
  while (!stop.aborted) {
    try {
      await events("/live", stop, (name, record) => {
        if (name !== "sample") return;
        each(sample(record.series ?? record.values ?? record.total ?? record, (value) => value, record.time ?? record.start ?? Date.now() / 1000, 1), "live");
      });
    } catch (error) {
      if (stop.aborted) return;
      if (error instanceof ApiError && error.isMissing) return readings(stop, each);
    }
    await new Promise((done) => setTimeout(done, 2000));
  }
}

function readings(stop: AbortSignal, each: (sample: Sample, how: "status") => void) {
  let before: { at: number; totals: any } | null = null;
  poll(stop, 1, async () => {
    try {
      const { totals } = await status(stop);
      const now = { at: performance.now() / 1000, totals };
      if (before) {
        const seconds = now.at - before.at;
        const per = (name: string) => Math.max(0, (totals[name] - before!.totals[name]) / seconds);
        each({
          time: Date.now() / 1000, requests: per("requests"), statuses: [null, null, null, null, null], p50: null, p90: null, p99: null,
          sent: per("bytes_out"), received: per("bytes_in"), connections: number(totals.connections),
        }, "status");
      }
      before = now;
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
    }
  });
}
