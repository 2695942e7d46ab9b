// The list of views.
import { audit } from "./views/audit";
import { bans } from "./views/bans";
import { cache } from "./views/cache";
import { certificates } from "./views/certificates";
import { config } from "./views/config";
import { explain } from "./views/explain";
import { limits } from "./views/limits";
import { overview } from "./views/overview";
import { php } from "./views/php";
import { requests } from "./views/requests";
import { rules } from "./views/rules";
import { sites } from "./views/sites";
import { traffic } from "./views/traffic";
import { upstreams } from "./views/upstreams";

export interface View {
  id: string;
  /** In the language of the reader. */
  title: () => string;
  /** The key after `g` that leads here. */
  key: string;
  show: (place: HTMLElement, stop: AbortSignal, argument: string) => void;
}

export const VIEWS: View[] = [
  overview, traffic, requests, explain, sites, upstreams, cache, php, certificates, bans, limits, rules, config, audit,
];
