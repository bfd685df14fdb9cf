// The map of the long tail: a row for each class, from typical to memorized, an example in each cell. It needs no other
// file than its own, so that it is there before the columns of all examples are.
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { columns as unpacked, fraction, mapUrl, type Packed, type Sheet } from "./data";
import { exampleHref, Tile, Waiting } from "./parts";
import { className, report, scoreOf } from "./report";
import { href, refine, useDocument, type Route } from "./state";
import { count, percent, plural, value } from "./words";

export type Feature = [string, string, number]; // name, value, how far from what is usual in the class

interface MapDocument {
  columns: number;
  row: Packed;
  column: Packed;
  count: Packed;
  index: Packed;
  memorization: Packed;
  accuracyIn: Packed;
  accuracyOut: Packed;
  sheet?: Sheet & { tiles: number };
  words?: (string | Feature[])[];
}

interface Cell {
  place: number; // among the cells of the document, and their thumbnails
  column: number;
  count: number;
  index: number;
  memorization: number;
  accuracyIn: number;
  accuracyOut: number;
}

interface Row {
  code: number;
  cells: Cell[]; // by column
  counts: number[]; // of all columns, what is not learned last
  total: number;
  memorized: number; // share
}

const FEW = 10; // rows at first
const MORE = 200; // rows at a time
const UNUSUAL = 2; // standard deviations
const SORTS: Record<string, [string, (a: Row, b: Row) => number]> = {
  most: ["most memorized first", (a, b) => b.memorized - a.memorized],
  least: ["least memorized first", (a, b) => a.memorized - b.memorized],
  name: ["by name", (a, b) => className(a.code).localeCompare(className(b.code), undefined, { numeric: true })],
  size: ["largest first", (a, b) => b.total - a.total],
};

/** Rows of the map; a class without a training example has none. */
function rowsOf(map: MapDocument): Row[] {
  const { words, ...packed } = map;
  const found = unpacked(packed);
  const threshold = report.meta.facts.thresholds.memorization * map.columns;
  const rows = new Map<number, Row>();
  for (let place = 0; place < found.row.length; place++) {
    const code = found.row[place];
    let row = rows.get(code);
    if (!row) rows.set(code, (row = { code, cells: [], counts: new Array(map.columns + 1).fill(0), total: 0, memorized: 0 }));
    const column = found.column[place];
    row.cells.push({
      place,
      column,
      count: found.count[place],
      index: found.index[place],
      memorization: fraction(found.memorization, place),
      accuracyIn: fraction(found.accuracyIn, place),
      accuracyOut: fraction(found.accuracyOut, place),
    });
    row.counts[column] = found.count[place];
    row.total += found.count[place];
    if (column >= threshold && column < map.columns) row.memorized += found.count[place];
  }
  for (const row of rows.values()) row.memorized /= row.total;
  return [...rows.values()];
}

/** The cells of a row in fewer columns: of those that are joined, the one nearest to what the wide column stands for. */
function joined(row: Row, columns: number, across: number): (Cell | undefined)[] {
  const cells: (Cell | undefined)[] = new Array(across + 1).fill(undefined);
  for (const cell of row.cells) {
    const column = cell.column === columns ? across : Math.floor((cell.column * across) / columns);
    const before = cells[column];
    const target = column / Math.max(1, across - 1);
    const nearer = !before || Math.abs(cell.memorization - target) < Math.abs(before.memorization - target);
    cells[column] = { ...(nearer ? cell : before), column, count: cell.count + (before?.count ?? 0) };
  }
  return cells;
}

/** Some rows of all, evenly spread, the first and the last among them. */
function spread(rows: Row[], most: number): Row[] {
  if (rows.length <= most) return rows;
  return Array.from({ length: most }, (_, k) => rows[Math.round((k * (rows.length - 1)) / (most - 1))]);
}

/** Where a cell leads: to its examples, or to the one that it has. */
function cellHref(row: Row, cell: Cell, across: number): string {
  if (cell.count === 1) return exampleHref("train", cell.index);
  if (cell.column === across) return href("gallery", { class: row.code, learned: "no" });
  const first = cell.column === 0;
  const below = (4 * cell.column) / across < 4 * report.meta.facts.thresholds.memorization;
  return href("gallery", {
    class: row.code,
    sort: first ? "typical" : null,
    min: first ? null : cell.column / across,
    max: cell.column === across - 1 ? null : ((cell.column + 1) / across - 0.0001).toFixed(4),
    learned: below && row.counts[row.counts.length - 1] ? "yes" : null,
  });
}

function rangeOf(cell: Cell, across: number): string {
  if (cell.column === across) return "not learned";
  const to = scoreOf((cell.column + 1) / across);
  return cell.column ? `memorization ${scoreOf(cell.column / across)} to ${to}` : `memorization up to ${to}`;
}

function said(cell: Cell): string {
  if (report.meta.scores) return `of score ${scoreOf(cell.accuracyOut)} in models that never saw it, ${scoreOf(cell.accuracyIn)} in those that did`;
  return `right in ${percent(cell.accuracyOut)} of the models that never saw it, in ${percent(cell.accuracyIn)} of those that did`;
}

export function LongTail({ route }: { route: Route }) {
  const map = useDocument<MapDocument>("map");
  const box = useRef<HTMLDivElement>(null);
  const [width, setWidth] = useState(0);
  const there = map && !(map instanceof Error);
  useLayoutEffect(() => {
    if (!box.current) return;
    const measure = () => setWidth(box.current!.clientWidth);
    measure();
    const observer = new ResizeObserver(measure);
    observer.observe(box.current);
    return () => observer.disconnect();
  }, [there]);
  const rows = useMemo(() => (there ? rowsOf(map) : []), [there]);
  const sort = Object.hasOwn(SORTS, route.query.get("sort") ?? "") ? route.query.get("sort")! : "most";
  const text = (route.query.get("q") ?? "").trim().toLowerCase();
  const sorted = useMemo(() => {
    const words = text.split(",").map((word) => word.trim()).filter(Boolean);
    const found = rows.filter((row) => !words.length || words.some((word) => className(row.code).toLowerCase().includes(word)));
    return found.sort((a, b) => SORTS[sort][1](a, b) || a.code - b.code);
  }, [rows, sort, text]);
  const asked = Number(route.query.get("rows")) || 0;
  const few = sorted.length > FEW && !asked;
  const shown = few ? spread(sorted, FEW) : sorted.slice(0, Math.max(FEW, asked));
  if (!map || map instanceof Error) return <Waiting what={map} />;
  if (!rows.length) return null;
  const { columns } = map;
  const words = !map.sheet && map.words !== undefined;
  const filled = rows.reduce((sum, row) => sum + row.cells.length, 0) / (rows.length * columns);
  const phone = width < 640;
  const across = words ? (width >= 1000 ? columns / 2 : columns / 4) : phone || width < 900 || filled < 0.55 ? columns / 2 : columns;
  const unlearned = rows.some((row) => row.counts[columns] > 0);
  const several = rows.length > 1;
  return (
    <section class="card tail" aria-labelledby="tail">
      <div class="tail-head">
        <div>
          <h2 id="tail">From typical to memorized</h2>
          <p class="hint">
            {several ? "Each row is a class. Each cell shows one of its examples and leads to all that are like it." : "Each cell shows one example and leads to all that are like it."}{" "}
            {report.meta.scores ? "On the right models do better if they saw the example itself." : "On the left are examples that models learn from the others. On the right models are right only if they saw the example itself."}
          </p>
        </div>
        {several && (
          <form class="tail-filter" onSubmit={(event) => event.preventDefault()}>
            <label class="field">
              <span>Classes</span>
              <input
                id="search"
                type="search"
                placeholder={`such as ${className(rows[0].code).slice(0, 12)}`}
                value={route.query.get("q") ?? ""}
                onInput={(event) => refine({ q: event.currentTarget.value })}
              />
            </label>
            <label class="field">
              <span>Order</span>
              <select id="tail-sort" value={sort} onChange={(event) => refine({ sort: event.currentTarget.value })}>
                {Object.entries(SORTS).map(([name, [what]]) => (
                  <option key={name} value={name}>
                    {what}
                  </option>
                ))}
              </select>
            </label>
          </form>
        )}
      </div>
      <div ref={box} class={`map ${phone ? "phone" : ""} ${words ? "words" : ""}`}>
        {width > 0 && (
          <Rows key={across} map={map} rows={shown} across={across} unlearned={unlearned} width={width} phone={phone} several={several} />
        )}
      </div>
      {shown.length === 0 && <p class="empty">No class is called that.</p>}
      {several && (shown.length < rows.length || asked > 0) && (
        <p class="tail-foot">
          <span role="status">
            {few
              ? `${plural(shown.length, "class", "classes")} of ${count(sorted.length)}, evenly spread over this order.`
              : `${count(shown.length)} of ${plural(rows.length, "class", "classes")}.`}
          </span>{" "}
          {shown.length < sorted.length && (
            <button type="button" class="button" onClick={() => refine({ rows: (few ? 0 : shown.length) + MORE })}>
              {sorted.length <= MORE ? `Show all ${count(sorted.length)}` : `Show ${count(Math.min(MORE, sorted.length - (few ? 0 : shown.length)))} more`}
            </button>
          )}
          {!few && asked > 0 && sorted.length > FEW && (
            <button type="button" class="button" onClick={() => refine({ rows: null })}>
              Show fewer
            </button>
          )}
        </p>
      )}
    </section>
  );
}

interface RowsProps {
  map: MapDocument;
  rows: Row[];
  across: number;
  unlearned: boolean;
  width: number;
  phone: boolean;
  several: boolean;
}

const GAP = 4;
const APART = 14; // pixels between the columns and what is not learned
const LARGEST = 84; // pixels of a picture

function Rows({ map, rows, across, unlearned, width, phone, several }: RowsProps) {
  const body = useRef<HTMLDivElement>(null);
  const [near, setNear] = useState<{ row: Row; cell: Cell; x: number; y: number; above: boolean } | null>(null);
  const [place, setPlace] = useState<[number, number]>([0, 0]); // of the one link that the Tab key reaches
  const words = !map.sheet && map.words !== undefined;
  const beside = phone ? 0 : 124;
  const end = phone ? 0 : 132;
  const more = unlearned ? 1 : 0;
  const cut = report.meta.facts.thresholds.memorization;
  const room = Math.floor((width - beside - end - APART * more) / (across + more)) - GAP;
  const side = words ? room : Math.max(20, Math.min(LARGEST, room));
  const beyond = (width - beside) / (side + GAP) > across + more + 4; // room for a wider histogram
  const each = beyond ? `${side + GAP}px` : "minmax(0, 1fr)";
  const inside = `repeat(${across}, ${each})${more ? ` ${words ? each : `${side + APART}px`}` : ""}`;
  const template = phone ? undefined : `${beside}px ${inside} ${beyond ? `minmax(${end}px, 380px)` : `${end}px`}`;
  const cells = useMemo(() => rows.map((row) => joined(row, map.columns, across)), [rows, across]);
  useEffect(() => setNear(null), [rows, across, width]);

  const look = (event: Event) => {
    const link = (event.target as Element).closest<HTMLElement>("[data-cell]");
    if (!link || !body.current) return setNear(null);
    const [r, c] = link.dataset.cell!.split(" ").map(Number);
    const at = link.getBoundingClientRect();
    const frame = body.current.getBoundingClientRect();
    const cell = cells[r]?.[c];
    if (!cell) return setNear(null);
    const above = at.bottom + 190 > window.innerHeight;
    setNear({ row: rows[r], cell, x: at.left - frame.left + at.width / 2, y: (above ? at.top : at.bottom) - frame.top, above });
  };
  const focus = (r: number, c: number) => {
    setPlace([r, c]);
    const link = body.current?.querySelector<HTMLElement>(`[data-place="${r} ${c}"]`);
    link?.focus();
    link?.scrollIntoView({ block: "nearest" });
  };
  const move = (event: KeyboardEvent) => {
    const link = (event.target as Element).closest<HTMLElement>("[data-place]");
    if (!link || event.altKey || event.ctrlKey || event.metaKey) return;
    if (event.key === "Escape") return setNear(null);
    const [r, c] = link.dataset.place!.split(" ").map(Number);
    const links = (row: number) => [-1, ...cells[row].flatMap((cell) => (cell ? [cell.column] : []))];
    const nearest = (row: number) => links(row).reduce((best, one) => (Math.abs(one - c) < Math.abs(best - c) ? one : best));
    const own = links(r);
    const at = own.indexOf(c);
    const to: Record<string, [number, number] | undefined> = {
      ArrowRight: at + 1 < own.length ? [r, own[at + 1]] : undefined,
      ArrowLeft: at > 0 ? [r, own[at - 1]] : undefined,
      ArrowDown: r + 1 < rows.length ? [r + 1, nearest(r + 1)] : undefined,
      ArrowUp: r > 0 ? [r - 1, nearest(r - 1)] : undefined,
      Home: [r, own[0]],
      End: [r, own[own.length - 1]],
    };
    if (!(event.key in to)) return;
    event.preventDefault();
    event.stopPropagation();
    if (to[event.key]) focus(...to[event.key]!);
  };
  const reached = rows[place[0]] && (place[1] < 0 || cells[place[0]][place[1]]) ? place : [0, -1];

  return (
    <div
      ref={body}
      class="map-body"
      onMouseOver={look}
      onMouseLeave={() => setNear(null)}
      onFocusIn={look}
      onFocusOut={() => setNear(null)}
      onKeyDown={move}
    >
      <Axis across={across} unlearned={unlearned} template={template} phone={phone} />
      <ul>
        {rows.map((row, r) => (
          <li key={row.code} class={beyond ? "map-row beyond" : "map-row"} style={template ? { gridTemplateColumns: template } : undefined}>
            <a
              class="map-name"
              href={href("gallery", { class: row.code })}
              data-place={`${r} -1`}
              data-class={row.code}
              tabIndex={reached[0] === r && reached[1] === -1 ? 0 : -1}
              aria-label={`${className(row.code)}: ${plural(row.total, "training example")}${report.meta.scores ? "" : `, ${percent(row.memorized)} memorized`}`}
            >
              <b title={className(row.code)}>{several ? className(row.code) : "all examples"}</b>
              {!phone && <small>{plural(row.total, "example")}</small>}
            </a>
            {phone && <End row={row} />}
            <span class="map-cells" style={{ gridTemplateColumns: phone && words ? undefined : inside, gridColumn: phone ? undefined : `2 / span ${across + more}` }}>
              {cells[r].slice(0, across + more).map((cell, column) =>
                cell ? (
                  <a
                    key={column}
                    class={`map-cell ${column === across ? "unlearned" : (4 * column) / across >= 4 * cut ? "high" : ""}`}
                    href={cellHref(row, cell, across)}
                    data-cell={`${r} ${column}`}
                    data-place={`${r} ${column}`}
                    tabIndex={reached[0] === r && reached[1] === column ? 0 : -1}
                    aria-label={`${className(row.code)}, ${rangeOf(cell, across)}: ${plural(cell.count, "training example")}. Number ${cell.index} is ${said(cell)}.`}
                  >
                    {phone && words && <small class="at">{column === across ? "–" : value(cell.memorization)}</small>}
                    <Shown map={map} cell={cell} side={side} />
                  </a>
                ) : (
                  <span key={column} class={`map-cell none ${column === across ? "unlearned" : ""}`} style={map.sheet ? { height: `${side}px` } : undefined} />
                ),
              )}
            </span>
            {!phone && <End row={row} />}
          </li>
        ))}
      </ul>
      {near && <Near map={map} across={across} width={width} {...near} />}
    </div>
  );
}

/** What the columns mean: a line from grey to orange with the threshold on it. */
function Axis({ across, unlearned, template, phone }: { across: number; unlearned: boolean; template?: string; phone: boolean }) {
  const { memorization } = report.meta.facts.thresholds;
  const more = unlearned ? 1 : 0;
  return (
    <div class="map-axis" aria-hidden="true" style={template ? { gridTemplateColumns: template } : undefined}>
      <span class="map-scale" style={phone ? { width: `${(100 * across) / (across + more)}%` } : { gridColumn: `2 / span ${across}` }}>
        <span class="map-ends">
          <span>typical</span>
          <span class="hot">memorized</span>
        </span>
        <span class="map-line" />
        {[0, 0.25, 0.5, 0.75, 1].map((tick) => (
          <span key={tick} class={tick === memorization ? "map-tick cut" : "map-tick"} style={{ left: `${100 * tick}%` }}>
            {report.meta.scores ? scoreOf(tick) : tick}
          </span>
        ))}
      </span>
      {unlearned && !phone && <span class="map-unlearned">not learned</span>}
      {!phone && <span class="map-end-name">how many</span>}
    </div>
  );
}

function Shown({ map, cell, side }: { map: MapDocument; cell: Cell; side: number }) {
  const { sheet } = map;
  if (sheet && cell.place < sheet.tiles) {
    return <Tile sheet={sheet} url={mapUrl} place={cell.place} of={sheet.tiles} side={side} />;
  }
  const words = map.words?.[cell.place];
  if (words === undefined) return <span class="nothing">{cell.index}</span>;
  return <Telling words={words} />;
}

/** A few words of an input: a stretch of its text, or the features that are least usual in its class. */
export function Telling({ words }: { words: string | Feature[] }) {
  if (typeof words === "string") {
    return (
      <span class="telling" dir="auto">
        {words.trim() ? words : <span class="soft">(blank text)</span>}
      </span>
    );
  }
  return (
    <span class="telling features">
      {words.map(([name, text, far]) => (
        <span key={name} class={Math.abs(far) >= UNUSUAL ? "unusual" : ""}>
          <i>{name}</i>
          <b>
            {text}
            {Math.abs(far) >= UNUSUAL && (/^[−.\d]/.test(text) ? (far > 0 ? " ▲" : " ▼") : " (rare)")}
          </b>
        </span>
      ))}
    </span>
  );
}

/** The end of a row: the share that is memorized, and the histogram of the class. */
function End({ row }: { row: Row }) {
  const counts = row.counts.slice(0, -1);
  const top = Math.max(1, ...counts);
  const cut = report.meta.facts.thresholds.memorization * counts.length;
  return (
    <span class="map-end">
      <svg viewBox={`0 0 ${counts.length * 5} 40`} preserveAspectRatio="none" aria-hidden="true">
        {counts.map((n, k) => {
          const high = n ? Math.max(1.2, (40 * n) / top) : 0;
          return <rect key={k} class={k >= cut ? "bar high" : "bar"} x={k * 5 + 0.5} width={4} y={40 - high} height={high} />;
        })}
      </svg>
      {!report.meta.scores && (
        <span class="map-share">
          <b>{percent(row.memorized)}</b>
          <small>memorized</small>
        </span>
      )}
    </span>
  );
}

const CARD = 330;

function Near({ map, row, cell, across, x, y, above, width }: { map: MapDocument; row: Row; cell: Cell; across: number; x: number; y: number; above: boolean; width: number }) {
  const left = Math.max(0, Math.min(width - CARD, x - CARD / 2));
  return (
    <div class="near" aria-hidden="true" style={{ width: `${Math.min(width, CARD)}px`, left: `${left}px`, top: `${y}px`, transform: above ? "translateY(calc(-100% - 8px))" : "translateY(8px)" }}>
      {map.sheet && (
        <span class="frame">
          <Shown map={map} cell={cell} side={112} />
        </span>
      )}
      <div>
        <p class="name">{className(row.code)}</p>
        {!map.sheet && <Shown map={map} cell={cell} side={112} />}
        <p class="fact hot">memorization {scoreOf(cell.memorization)}</p>
        <p>{said(cell)}</p>
        <p class="soft">
          {cell.count === 1 ? "the only one here" : `one of ${count(cell.count)}: ${rangeOf(cell, across)}`}
        </p>
      </div>
    </div>
  );
}
