// The explorer: its frame, its keys, and which view the URL asks for.
import { render } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { load, type Meta, type Split } from "./data";
import { Classes } from "./classes";
import { Example, neighbours } from "./example";
import { Gallery } from "./gallery";
import { Overview } from "./overview";
import { Pairs } from "./pairs";
import { useId, Waiting } from "./parts";
import { className, label, report, setReport, size } from "./report";
import { Duplicates, Mislabels } from "./review";
import { currentRoute, go, href, setShortcuts, shortcuts, showSharp, useDocument, useRoute, useTheme, type Route } from "./state";
import "./style.css";

const VIEWS = [
  ["", "Overview"],
  ["gallery", "Examples"],
  ["pairs", "Pairs"],
  ["mislabels", "Mislabels"],
  ["duplicates", "Duplicates"],
  ["classes", "Classes"],
] as const;

const KEYS = [
  ["1 – 6", "overview, examples, pairs, mislabels, duplicates, classes"],
  ["/", "search"],
  ["← → ↑ ↓", "move among tiles; on an example's page: previous and next"],
  ["j k", "next and previous example"],
  ["Enter", "open"],
  ["Esc", "back to the examples"],
  ["y n", "decide about the entry that has the focus, in the lists to review"],
  ["t", "dark or light"],
  ["?", "this help"],
] as const;

const WHOLE = /^\d+$/;

function View({ route, there }: { route: Route; there: boolean | Error }) {
  const [view, index] = route.path;
  const known = VIEWS.some(([path]) => path && path === view) || view === "train" || view === "test";
  if (!known && !(there instanceof Error)) return <Overview route={route} there={there} />;
  if (there !== true) {
    return (
      <>
        <h1 class="sr" tabIndex={-1}>
          {report.meta.title}
        </h1>
        <Waiting what={there || undefined} />
      </>
    );
  }
  if (view === "gallery") return <Gallery route={route} />;
  if (view === "pairs") return <Pairs route={route} />;
  if (view === "mislabels") return <Mislabels route={route} />;
  if (view === "duplicates") return <Duplicates route={route} />;
  if (view === "classes") return <Classes route={route} />;
  if (view === "train" || view === "test") return <Example key={`${view}${index}`} split={view} index={WHOLE.test(index ?? "") ? Number(index) : NaN} />;
  return null;
}

/** Load the columns of all examples, after the first paint: true once they are there. */
function useColumns(): boolean | Error {
  const train = useDocument<object>("train");
  const test = useDocument<object>("test");
  for (const one of [train, test]) if (one instanceof Error) return one;
  if (!train || !test) return false;
  if (!report.train.label) setReport(report.meta, train, test);
  return true;
}

function App() {
  const route = useRoute();
  const [, toggleTheme] = useTheme();
  const help = useRef<HTMLDialogElement>(null);
  const view = route.path[0] ?? "";
  const known = VIEWS.find(([path]) => path === view);
  const section = view === "train" || view === "test" ? "gallery" : (known?.[0] ?? "");
  const place = route.path.join("/");
  const there = useColumns();
  const shown = (view === "train" || view === "test") && WHOLE.test(route.path[1] ?? "");
  const id = useId(shown ? (view as Split) : "train", shown && Number(route.path[1]) < size(view as Split) ? Number(route.path[1]) : -1);

  useEffect(() => {
    const example = (view === "train" || view === "test") && WHOLE.test(route.path[1] ?? "") && Number(route.path[1]) < size(view) ? Number(route.path[1]) : null;
    if (example !== null && there === true) {
      const one = `${className(label(view as Split, example))}, ${id ? `${view} ${id}` : `${view} ${example}`}`;
      document.title = `${one} – ${report.meta.title} – memfluence`;
      return;
    }
    const name = known && view ? known[1] : view === "train" || view === "test" ? WHOLE.test(route.path[1] ?? "") ? `${view} ${route.path[1]}` : "no such example" : "";
    document.title = `${name ? `${name} – ` : ""}${report.meta.title} – memfluence`;
  }, [place, there, id]);
  useEffect(() => {
    document.querySelector(".topbar [aria-current]")?.scrollIntoView({ block: "nearest", inline: "nearest" });
  }, [section]);
  const first = useRef(true);
  useEffect(() => {
    if (!first.current) document.querySelector<HTMLElement>("main h1")?.focus({ preventScroll: true });
    first.current = false;
  }, [place]);

  useEffect(() => {
    const pressed = (event: KeyboardEvent) => {
      const { path } = currentRoute(); // of this moment: keys may come faster than views
      const typing = (event.target as Element).closest("input:not([type=checkbox]), select, textarea");
      if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented || help.current?.open) return;
      if (typing) {
        if (event.key === "Escape") (typing as HTMLElement).blur();
        return;
      }
      if (event.key.length === 1 && !shortcuts()) return;
      const number = Number(event.key);
      if (number >= 1 && number <= VIEWS.length) return go(href(VIEWS[number - 1][0]));
      if (event.key === "?") return help.current?.showModal();
      if (event.key === "t") return toggleTheme();
      if (event.key === "/") {
        event.preventDefault();
        const search = document.querySelector<HTMLInputElement>("#search");
        if (search) search.focus();
        else go(href("gallery"));
        return;
      }
      if ((path[0] === "train" || path[0] === "test") && report.train.label) {
        const near = neighbours(path[0] as Split, Number(path[1]));
        const back = event.key === "k" || event.key === "ArrowLeft";
        const on = event.key === "j" || event.key === "ArrowRight";
        const to = back ? near.before : on ? near.after : null;
        if (to !== null) {
          event.preventDefault();
          go(href(`${path[0]}/${to}`));
        }
        if (event.key === "Escape") document.querySelector<HTMLAnchorElement>(".steps a")?.click();
      } else if (event.key.startsWith("Arrow") && document.activeElement?.closest(".virtual, .map") === null) {
        document.querySelector<HTMLElement>('.virtual a[tabindex="0"], .virtual button, .map a[tabindex="0"]')?.focus({ preventScroll: true });
      }
    };
    document.addEventListener("keydown", pressed);
    return () => document.removeEventListener("keydown", pressed);
  });

  return (
    <>
      <a class="skip" href="#main" onClick={(event) => (event.preventDefault(), document.querySelector<HTMLElement>("main h1")?.focus())}>
        Skip to the content
      </a>
      <header class="topbar">
        <a class="brand" href="#/" aria-label="memfluence, overview">
          <svg viewBox="0 0 16 16" width="20" height="20" aria-hidden="true">
            <rect width="16" height="16" rx="4" />
            <path d="M4 12V8M8 12V4M12 12V6" />
          </svg>
          <span>memfluence</span>
        </a>
        <nav aria-label="Views">
          {VIEWS.map(([path, name]) => (
            <a key={path} href={href(path)} aria-current={section === path ? "page" : undefined}>
              {name}
            </a>
          ))}
        </nav>
        <div class="tools">
          <button type="button" onClick={toggleTheme} aria-label="Dark or light" title="Dark or light (t)">
            <svg viewBox="0 0 16 16" width="16" height="16" aria-hidden="true">
              <circle cx="8" cy="8" r="6" fill="none" stroke="currentColor" stroke-width="1.6" />
              <path d="M8 2a6 6 0 0 1 0 12z" fill="currentColor" />
            </svg>
          </button>
          <button type="button" onClick={() => help.current?.showModal()} aria-label="Keys" title="Keys (?)">
            ?
          </button>
        </div>
      </header>
      <main id="main">
        <View route={route} there={there} />
      </main>
      <footer>
        <span>{report.meta.title}</span>
        <span>memfluence {report.meta.version}; after Feldman and Zhang (2020)</span>
      </footer>
      <dialog ref={help} aria-labelledby="keys">
        <div>
          <h2 id="keys">Keys</h2>
          <dl>
            {KEYS.map(([key, does]) => (
              <div key={key}>
                <dt>
                  <kbd>{key}</kbd>
                </dt>
                <dd>{does}</dd>
              </div>
            ))}
          </dl>
          <label class="shortcuts">
            <input type="checkbox" defaultChecked={shortcuts()} onChange={(event) => setShortcuts(event.currentTarget.checked)} />
            Letters, digits and signs are shortcuts everywhere on the page
          </label>
          <button type="button" class="button" onClick={() => help.current?.close()}>
            Close
          </button>
        </div>
      </dialog>
    </>
  );
}

async function start(): Promise<void> {
  const app = document.getElementById("app")!;
  try {
    const meta = await load<Meta>("meta");
    setReport(meta);
    showSharp();
    document.documentElement.dataset.inputs = meta.inputs === "images" ? "images" : "words";
    app.textContent = ""; // what stood in the page until now
    render(<App />, app);
  } catch (error) {
    app.textContent = (error as Error).message;
  }
}

start();
