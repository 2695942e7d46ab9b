// The list of views, and which of them the server and the account have.
import { isForAllSites, may, offers } from "./api";
import { audit } from "./views/audit";
import { bans } from "./views/bans";
import { cache } from "./views/cache";
import { certificates } from "./views/certificates";
import { config } from "./views/config";
import { explain } from "./views/explain";
import { log } from "./views/log";
import { limits } from "./views/limits";
import { overview } from "./views/overview";
import { php } from "./views/php";
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
  /** The view is shown if the server has one of these operations. */
  needs: string[];
  /** The role that all of its operations need, if it is more than reading. */
  role?: "configure";
  /** Accounts that are for some sites have it, too. */
  isForSomeSites?: boolean;
  show: (place: HTMLElement, stop: AbortSignal, argument: string) => void;
}

const VIEWS: View[] = [
  overview, traffic, log, explain, sites, upstreams, cache, php, certificates, bans, limits, rules, config, audit,
];

/** The views that can be shown to whoever is logged in. */
export function views(): View[] {
  return VIEWS.filter((view) => view.needs.some(offers) && (isForAllSites() || view.isForSomeSites) && (!view.role || may(view.role)));
}
