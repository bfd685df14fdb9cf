// State that outlives a view: the route in the URL's hash, the theme, the reader's decisions.
import { useEffect, useReducer, useState } from "preact/hooks";
import { load, peek } from "./data";

export interface Route {
  path: string[];
  query: URLSearchParams;
}

let shown = location.hash; // what is on the page; the address bar may be a moment behind
let waiting: number | undefined; // the timer that writes it there

export function currentHash(): string {
  return shown;
}

/** Where the reader is or is going: the browser tells of a link that was followed only after a moment. */
export function currentRoute(): Route {
  const hash = waiting === undefined ? location.hash : shown;
  const [path, query] = hash.replace(/^#\/?/, "").split("?");
  let parts: string[] = [];
  try {
    parts = path.split("/").filter(Boolean).map(decodeURIComponent);
  } catch {
    // a mangled link is the overview
  }
  return { path: parts, query: new URLSearchParams(query ?? "") };
}

export function href(path: string, query: Record<string, string | number | null | undefined> = {}): string {
  const kept = Object.entries(query).filter(([, value]) => value !== null && value !== undefined && value !== "");
  const text = new URLSearchParams(kept.map(([key, value]) => [key, String(value)])).toString();
  return `#/${path}${text ? `?${text}` : ""}`;
}

const places = new Map<string, number>(); // where each view was scrolled to
let last = shown;
let followed = false; // a link, rather than back or forward

// A dragged slider changes the route a hundred times a second; browsers allow about a hundred changes of the address in
// half a minute, and refuse or throw after that.
const ADDRESS_AFTER = 350;
let written = -ADDRESS_AFTER;

function writeAddress(): void {
  clearTimeout(waiting);
  waiting = undefined;
  if (shown === location.hash) return;
  written = performance.now();
  history.replaceState(null, "", shown);
}

/** Change the query of the present view without a new entry in the history. */
export function refine(changes: Record<string, string | number | null>): void {
  const route = currentRoute();
  for (const [key, value] of Object.entries(changes)) {
    if (value === null || value === "") route.query.delete(key);
    else route.query.set(key, String(value));
  }
  last = shown = href(route.path.join("/"), Object.fromEntries(route.query));
  waiting ??= window.setTimeout(writeAddress, Math.max(0, written + ADDRESS_AFTER - performance.now()));
  window.dispatchEvent(new Event("refined"));
}

export function go(hash: string): void {
  writeAddress();
  followed = true;
  location.hash = hash;
}

export function useRoute(): Route {
  const [route, setRoute] = useState(currentRoute);
  useEffect(() => {
    history.scrollRestoration = "manual";
    const changed = () => {
      clearTimeout(waiting);
      waiting = undefined;
      places.set(last, window.scrollY);
      last = shown = location.hash;
      const top = followed ? 0 : (places.get(last) ?? 0);
      followed = false;
      setRoute(currentRoute());
      requestAnimationFrame(() => requestAnimationFrame(() => window.scrollTo(0, top)));
    };
    const refined = () => setRoute(currentRoute());
    const clicked = (event: MouseEvent) => {
      if (!(event.target as Element).closest?.('a[href^="#/"]')) return;
      writeAddress();
      if (!event.metaKey && !event.ctrlKey) followed = true;
    };
    window.addEventListener("hashchange", changed);
    window.addEventListener("refined", refined);
    document.addEventListener("click", clicked);
    return () => {
      window.removeEventListener("hashchange", changed);
      window.removeEventListener("refined", refined);
      document.removeEventListener("click", clicked);
    };
  }, []);
  return route;
}

/** A number of the query between two others; `otherwise` where it is none. */
export function numberIn(text: string | null, lowest: number, highest: number, otherwise: number): number {
  const found = text === null || text.trim() === "" ? NaN : Number(text);
  return Number.isNaN(found) ? otherwise : Math.min(highest, Math.max(lowest, found));
}

/** A document of the report; undefined while it is on its way, an Error where it cannot be had. */
export function useDocument<T>(name: string | null): T | Error | undefined {
  const [, again] = useReducer((count: number) => count + 1, 0);
  const [failed, setFailed] = useState<[string, Error] | null>(null);
  const there = name === null ? undefined : peek<T>(name);
  useEffect(() => {
    let wanted = true;
    if (name !== null && there === undefined) {
      load(name).then(
        () => wanted && again(undefined as never),
        (error) => wanted && setFailed([name, error]),
      );
    }
    return () => {
      wanted = false;
    };
  }, [name]);
  return there ?? (failed && failed[0] === name ? failed[1] : undefined);
}

// Storage may be refused (private windows, some browsers on file://) or full: then things last as long as the page.
const unsaved = new Map<string, string>();
const PREFIX = "memfluence-";

export function remember(key: string, value: string): void {
  try {
    localStorage.setItem(PREFIX + key, value);
    unsaved.delete(key);
  } catch {
    unsaved.set(key, value);
  }
}

export function recall(key: string): string | null {
  try {
    return unsaved.get(key) ?? localStorage.getItem(PREFIX + key);
  } catch {
    return null;
  }
}

export type Theme = "auto" | "light" | "dark";

export function useTheme(): [Theme, () => void] {
  const [theme, setTheme] = useState<Theme>(() => {
    const kept = recall("theme");
    return kept === "light" || kept === "dark" ? kept : "auto";
  });
  useEffect(() => {
    if (theme === "auto") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = theme;
  }, [theme]);
  const toggle = () => {
    const isDark = theme === "dark" || (theme === "auto" && matchMedia("(prefers-color-scheme: dark)").matches);
    const next = isDark ? "light" : "dark";
    remember("theme", next);
    setTheme(next);
  };
  return [theme, toggle];
}

/** Whether pictures show their pixels as squares; they are smooth otherwise. */
export function useSharp(): [boolean, () => void] {
  const [sharp, setSharp] = useState(() => recall("pixels") === "on");
  const toggle = () => {
    remember("pixels", sharp ? "off" : "on");
    setSharp(!sharp);
    showSharp(!sharp);
  };
  return [sharp, toggle];
}

export function showSharp(on = recall("pixels") === "on"): void {
  if (on) document.documentElement.dataset.pixels = "on";
  else delete document.documentElement.dataset.pixels;
}

/** Whether letters, digits and signs are shortcuts. Speech input types them by accident, so they can be turned off. */
export function shortcuts(): boolean {
  return recall("shortcuts") !== "off";
}

export function setShortcuts(on: boolean): void {
  remember("shortcuts", on ? "on" : "off");
}

export type Decision = "yes" | "no";

type Decisions = Record<string, Decision>;

function decisionsOf(name: string): Decisions {
  const clean: Decisions = {};
  try {
    for (const [key, value] of Object.entries(JSON.parse(recall(name) ?? "{}"))) {
      if (value === "yes" || value === "no") clean[key] = value;
    }
  } catch {
    // what is not ours counts for nothing
  }
  return clean;
}

/** Decisions about the entries of one list, by the entry's key; kept in this browser, for all its tabs. */
export function useDecisions(name: string): [Decisions, (key: string, decision: Decision) => void, () => void] {
  const [decisions, setDecisions] = useState(() => decisionsOf(name));
  useEffect(() => {
    const elsewhere = (event: StorageEvent) => {
      if (event.key === null || event.key === PREFIX + name) setDecisions(decisionsOf(name));
    };
    window.addEventListener("storage", elsewhere);
    return () => window.removeEventListener("storage", elsewhere);
  }, [name]);
  const keep = (next: Decisions) => {
    remember(name, JSON.stringify(next));
    setDecisions(next);
  };
  const decide = (key: string, decision: Decision) => {
    const next = decisionsOf(name); // as it stands now: keys may come faster than views, and another tab may decide, too
    if (next[key] === decision) delete next[key];
    else next[key] = decision;
    keep(next);
  };
  return [decisions, decide, () => keep({})];
}
