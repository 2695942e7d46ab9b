// Numbers, sizes and times for people.
import { language } from "./text";

const NOTHING = "–";

export function count(value: number | null | undefined): string {
  return typeof value === "number" && isFinite(value) ? Math.round(value).toLocaleString(language()) : NOTHING;
}

export function rate(value: number | null | undefined): string {
  if (typeof value !== "number" || !isFinite(value)) return NOTHING;
  return value >= 100 || value === 0 ? Math.round(value).toLocaleString(language()) : value.toPrecision(value >= 1 ? 3 : 2);
}

export function percent(share: number | null | undefined): string {
  if (typeof share !== "number" || !isFinite(share)) return NOTHING;
  const value = share * 100;
  return `${value >= 10 || value === 0 ? value.toFixed(0) : value.toFixed(value >= 1 ? 1 : 2)} %`;
}

export function bytes(value: number | null | undefined): string {
  if (typeof value !== "number" || !isFinite(value)) return NOTHING;
  const units = ["B", "kB", "MB", "GB", "TB"];
  let unit = 0;
  while (value >= 1000 && unit < units.length - 1) {
    value /= 1000;
    unit++;
  }
  return `${unit === 0 || value >= 100 ? Math.round(value) : value.toPrecision(3)} ${units[unit]}`;
}

/** A short time: 0.3 ms, 12 ms, 1.4 s. */
export function time(seconds: number | null | undefined): string {
  if (typeof seconds !== "number" || !isFinite(seconds)) return NOTHING;
  if (seconds === 0) return "0";
  if (seconds < 0.001) return `${Math.max(1, Math.round(seconds * 1e6))} µs`;
  if (seconds < 1) return `${(seconds * 1000).toPrecision(seconds < 0.01 ? 2 : 3)} ms`;
  return seconds < 100 ? `${seconds.toPrecision(3)} s` : span(seconds);
}

/** A long time: 45 s, 3 min, 5 h, 12 d. */
export function span(seconds: number | null | undefined): string {
  if (typeof seconds !== "number" || !isFinite(seconds)) return NOTHING;
  const sign = seconds < 0 ? "−" : "";
  const size = Math.abs(seconds);
  const zh = language() === "zh";
  if (size < 120) return `${sign}${Math.round(size)} ${zh ? "秒" : "s"}`;
  if (size < 7200) return `${sign}${Math.round(size / 60)} ${zh ? "分钟" : "min"}`;
  if (size < 172800) return `${sign}${Math.round(size / 3600)} ${zh ? "小时" : "h"}`;
  return `${sign}${Math.floor(size / 86400)} ${zh ? "天" : "d"}`;
}

/** A moment, from seconds since 1970 or RFC 3339. */
export function moment(value: number | string | null | undefined): string {
  if (value === null || value === undefined || value === "") return NOTHING;
  const date = new Date(typeof value === "number" ? value * 1000 : value);
  if (isNaN(date.getTime())) return String(value);
  return date.toLocaleString(language(), { month: "short", day: "numeric", hour: "2-digit", minute: "2-digit", second: "2-digit", hour12: false });
}

export function clock(seconds: number, withDay: boolean): string {
  const date = new Date(seconds * 1000);
  return withDay
    ? date.toLocaleString(language(), { month: "short", day: "numeric", hour: "2-digit", minute: "2-digit", hour12: false })
    : date.toLocaleTimeString(language(), { hour: "2-digit", minute: "2-digit", hour12: false });
}
