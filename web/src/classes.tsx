// A row for each class. Rows are of equal height and only those that are seen exist: there may be ten thousand.
import { useMemo } from "preact/hooks";
import { Meter } from "./parts";
import { className, classRows, report, type ClassRow } from "./report";
import { href, refine, type Route } from "./state";
import { count, percent, plural, value } from "./words";
import { pixels, VirtualGrid } from "./virtual";

type Column = [keyof ClassRow, string, string]; // key, heading, what it means

const COLUMNS: Column[] = [
  ["train", "train", "training examples"],
  ["test", "test", "test examples"],
  ["memorization", "memorization", "mean memorization"],
  ["memorized", "memorized", "share of training examples that are memorized"],
  ["accuracyOut", "held out", "right on training examples that were left out"],
  ["accuracyIn", "kept", "right on training examples that were kept"],
  ["testAccuracy", "test acc.", "right on test examples"],
  ["pairs", "pairs", "high-influence pairs"],
];

export function Classes({ route }: { route: Route }) {
  const asked = route.query.get("sort") ?? "memorization";
  const sort = (asked === "name" || COLUMNS.some(([key]) => key === asked) ? asked : "memorization") as keyof ClassRow | "name";
  const up = route.query.get("order") === "up";
  const text = (route.query.get("q") ?? "").trim().toLowerCase();
  const rows = useMemo(() => {
    const found = classRows().filter((row) => !text || className(row.code).toLowerCase().includes(text));
    const sign = up ? 1 : -1;
    const rank = (row: ClassRow) => (sort === "name" ? sign * -row.code : Number.isNaN(row[sort]) ? 1e12 : sign * row[sort]);
    return found.sort((a, b) => rank(a) - rank(b) || a.code - b.code);
  }, [sort, up, text]);
  const heading = (key: keyof ClassRow | "name", words: string, title: string) => (
    <button
      key={key}
      type="button"
      class={key === "name" ? "name" : key}
      title={title}
      aria-label={`${words}. Sort by ${title}${sort === key ? (up ? ", now lowest first" : ", now highest first") : ""}`}
      aria-pressed={sort === key}
      onClick={() => refine({ sort: key, order: sort === key && !up ? "up" : null })}
    >
      {words}
      {sort === key && <span aria-hidden="true">{up ? " ↑" : " ↓"}</span>}
    </button>
  );
  return (
    <>
      <div class="title">
        <h1 tabIndex={-1}>Classes</h1>
        <p>Means over the examples of each class. Choose a heading to sort, a class to see its examples.</p>
      </div>
      <div class="filters">
        <label class="field grow">
          <span>Search</span>
          <input
            id="search"
            type="search"
            placeholder="class"
            value={route.query.get("q") ?? ""}
            onInput={(event) => refine({ q: event.currentTarget.value })}
          />
        </label>
        <p class="found" role="status">
          {plural(rows.length, "class", "classes")} of {count(report.meta.classes.length)}
        </p>
      </div>
      <div class="classes">
        <div class="class-row headings" role="group" aria-label="Sort by">
          {heading("name", "class", "class")}
          {COLUMNS.map(([key, words, title]) => heading(key, words, title))}
        </div>
        <VirtualGrid
          count={rows.length}
          minWidth={10000}
          maxColumns={1}
          gap={0}
          height={() => {
            const high = pixels("--class-row");
            return () => high;
          }}
          label="Classes"
          keyOf={(position) => rows[position].code}
          render={(position, _, tabbable) => <Line row={rows[position]} tabbable={tabbable} />}
        />
      </div>
    </>
  );
}

function described(row: ClassRow): string {
  return `${className(row.code)}: ${plural(row.train, "training example")}, mean memorization ${value(row.memorization, 3)}, ${percent(row.memorized, 1)} memorized, ${percent(row.accuracyOut, 1)} right when held out, test accuracy ${percent(row.testAccuracy, 1)}, ${plural(row.pairs, "pair")}`;
}

function Line({ row, tabbable }: { row: ClassRow; tabbable: boolean }) {
  const name = className(row.code);
  return (
    <a class="class-row" href={href("gallery", { class: row.code })} tabIndex={tabbable ? 0 : -1} data-class={row.code} aria-label={described(row)}>
      <span class="name" title={name}>
        {name}
      </span>
      {COLUMNS.map(([key]) => {
        const number = row[key];
        const share = key === "memorized" || key.startsWith("accuracy") || key === "testAccuracy";
        return (
          <span key={key} class={key} data-value={Number.isNaN(number) ? "" : number}>
            {key === "memorization" ? value(number, 3) : share ? percent(number, 1) : count(number)}
            {(key === "memorization" || key === "testAccuracy") && <Meter value={number} tone={key === "memorization" ? "hot" : "cold"} />}
          </span>
        );
      })}
    </a>
  );
}
