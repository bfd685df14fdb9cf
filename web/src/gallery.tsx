// All examples of a split: filtered, sorted, and only those that are seen in the page.
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { inputsName, load, peek, type Inputs, type Split } from "./data";
import { Caption, chosenClass, ClassSelect, ExampleLink } from "./parts";
import { isLearned, ordered, report, size, SORTS, walk } from "./report";
import { currentHash, numberIn, recall, refine, remember, useSharp, type Route } from "./state";
import { count, value } from "./words";
import { pixels, VirtualGrid } from "./virtual";

const SIZES = { s: 72, m: 112, l: 176 } as const;
type TileSize = keyof typeof SIZES;

export function Gallery({ route }: { route: Route }) {
  const { meta } = report;
  const split: Split = route.query.get("split") === "test" ? "test" : "train";
  const fallback = split === "train" ? "memorized" : "influence";
  const asked = route.query.get("sort") ?? fallback;
  const sort = Object.hasOwn(SORTS[split], asked) ? asked : fallback;
  const code = chosenClass(route.query);
  const text = (route.query.get("q") ?? "").trim().toLowerCase();
  const lowest = split === "train" ? Math.min(0, meta.facts.histogram.edges[0]) : 0;
  const min = numberIn(route.query.get("min"), lowest, 1, lowest);
  const max = numberIn(route.query.get("max"), lowest, 1, 1);
  const learned = split === "train" ? route.query.get("learned") : null;
  const [tile, setTile] = useState<TileSize>(() => {
    const kept = recall("tile");
    return kept === "s" || kept === "l" ? kept : "m";
  });
  const [sharp, toggleSharp] = useSharp();
  const searched = useSearchable(split, text);

  const order = useMemo(() => {
    const { label } = report[split];
    const values = split === "train" ? report.train.memorization : report.test.accuracy;
    const lower = min <= lowest ? -Infinity : Math.round(min * 10000); // all of them also means those without an estimate
    const upper = max >= 1 ? Infinity : Math.round(max * 10000);
    const matches = text ? matcher(split, text) : null;
    const wanted = learned === "yes" || learned === "no" ? learned : null;
    return ordered(split, sort).filter(
      (k) =>
        (code < 0 || label[k] === code) &&
        values[k] >= lower &&
        values[k] <= upper &&
        (!wanted || isLearned(k) === (wanted === "yes")) &&
        (!matches || matches(k)),
    );
  }, [split, sort, code, text, min, max, learned, searched]);

  useEffect(() => {
    walk.split = split;
    walk.order = order;
    walk.from = currentHash();
  });

  const side = tile === "m" && window.innerWidth < 720 ? 100 : SIZES[tile]; // three in a row on a phone
  const pictures = meta.inputs === "images";
  const minWidth = pictures ? side + 2 : meta.inputs === "none" ? 112 : { s: 168, m: 232, l: 320 }[tile];
  const word = split === "train" ? "memorization" : "accuracy";
  return (
    <>
      <div class="title">
        <h1 tabIndex={-1}>Examples</h1>
        <div class="switch" role="group" aria-label="Split">
          {(["train", "test"] as const).map((one) => (
            <button
              key={one}
              type="button"
              aria-pressed={split === one}
              onClick={() => refine({ split: one === "train" ? null : one, sort: null, min: null, max: null, learned: null })}
            >
              {one === "train" ? "Training" : "Test"} <small>{count(size(one))}</small>
            </button>
          ))}
        </div>
      </div>
      <form class="filters" onSubmit={(event) => event.preventDefault()}>
        <label class="field grow">
          <span>Search</span>
          <input
            id="search"
            type="search"
            placeholder={meta.inputs === "texts" ? "text, class or index" : meta.ids ? "name, class or index" : "class or index"}
            value={route.query.get("q") ?? ""}
            onInput={(event) => refine({ q: event.currentTarget.value })}
          />
        </label>
        <ClassSelect chosen={code} onChange={(chosen) => refine({ class: chosen })} />
        <label class="field">
          <span>Sort</span>
          <select id="sort" value={sort} onChange={(event) => refine({ sort: event.currentTarget.value })}>
            {Object.entries(SORTS[split]).map(([name, [words]]) => (
              <option key={name} value={name}>
                {words}
              </option>
            ))}
          </select>
        </label>
        {(learned === "yes" || learned === "no") && (
          <button type="button" class="button chip" onClick={() => refine({ learned: null })} aria-label="Show those that are learned and those that are not">
            {learned === "no" ? "not learned: wrong even if seen" : "learned"} <span aria-hidden="true">×</span>
          </button>
        )}
        <RangeFilter word={word} lowest={lowest} min={min} max={max} />
        {pictures || meta.inputs !== "none" ? (
          <div class="field">
            <span id="size-label">Size</span>
            <div class="switch" role="group" aria-labelledby="size-label">
              {(["s", "m", "l"] as const).map((one) => (
                <button
                  key={one}
                  type="button"
                  aria-pressed={tile === one}
                  aria-label={{ s: "small", m: "medium", l: "large" }[one]}
                  onClick={() => {
                    remember("tile", one);
                    setTile(one);
                  }}
                >
                  {one.toUpperCase()}
                </button>
              ))}
              {pictures && (
                <button type="button" aria-pressed={sharp} aria-label="show pixels as squares" title="Pixels as squares" onClick={toggleSharp}>
                  ▦
                </button>
              )}
            </div>
          </div>
        ) : null}
        <p class="found" role="status">
          <b>{count(order.length)}</b> of {count(size(split))}
          {searched < 1 && `, searching ${Math.round(100 * searched)}%`}
        </p>
      </form>
      {order.length === 0 && <p class="empty">No example matches. Widen the range or clear the search.</p>}
      <VirtualGrid
        count={order.length}
        minWidth={minWidth}
        gap={pictures ? 10 : 12}
        height={(width) => {
          const high = pictures ? width + pixels("--tile-caption") : pixels(meta.inputs === "none" ? "--number-card" : "--words-card");
          return () => high;
        }}
        label={`${split === "train" ? "Training" : "Test"} examples`}
        keyOf={(position) => order[position]}
        render={(position, width, tabbable) => (
          <ExampleLink split={split} index={order[position]} side={width - 2} tabIndex={tabbable ? 0 : -1} class={pictures ? "tile" : "tile card"}>
            <Caption split={split} index={order[position]} by={SORTS[split][sort][1]} />
          </ExampleLink>
        )}
      />
    </>
  );
}

function matcher(split: Split, text: string): (index: number) => boolean {
  const { meta } = report;
  const classes = meta.classes.map((name) => name.toLowerCase().includes(text));
  const exact = /^#?\d+$/.test(text) ? Number(text.replace("#", "")) : -1;
  const named = exact >= 0 && text.startsWith("#") ? null : classes;
  return (index) => {
    if (index === exact) return true;
    if (named && named[report[split].label[index]]) return true;
    const name = inputsName(meta, split, index);
    const inputs = name === null ? undefined : peek<Inputs>(name);
    if (!inputs) return false;
    const k = index % meta.chunk;
    return (
      (inputs.ids?.[k].toLowerCase().includes(text) ?? false) ||
      (inputs.texts?.[k].toLowerCase().includes(text) ?? false) ||
      (inputs.features?.[k].some(([, cell]) => cell.toLowerCase() === text) ?? false)
    );
  };
}

/** Once there is something to look for: load what can be searched. Gives the share that is there. */
function useSearchable(split: Split, text: string): number {
  const { meta } = report;
  const chunks = inputsName(meta, split, 0) === null || !text ? 0 : Math.ceil(size(split) / meta.chunk);
  const [there, setThere] = useState(0);
  useEffect(() => {
    let wanted = true;
    let done = 0;
    let next = 0;
    const more = async () => {
      while (wanted && next < chunks) {
        const number = next++;
        await load(`${split}-inputs-${number}`).catch(() => undefined);
        done++;
        if (wanted && (done % 16 === 0 || done === chunks)) setThere(done);
      }
    };
    setThere(0);
    for (let k = 0; k < 6; k++) more();
    return () => {
      wanted = false;
    };
  }, [split, chunks]);
  return chunks ? there / chunks : 1;
}

/** Two handles on one line; both are plain sliders to the keyboard and to screen readers. */
function RangeFilter({ word, lowest, min, max }: { word: string; lowest: number; min: number; max: number }) {
  const low = useRef<HTMLInputElement>(null);
  const at = (share: number) => `${(100 * (Math.min(1, Math.max(lowest, share)) - lowest)) / (1 - lowest)}%`;
  const shown = (share: number) => value(Math.min(1, Math.max(lowest, share)));
  return (
    <fieldset class="field wide">
      <legend>
        {word[0].toUpperCase() + word.slice(1)}{" "}
        <output>
          {shown(min)} – {shown(max)}
        </output>
      </legend>
      <div class="range">
        <span class="track" aria-hidden="true">
          <span style={{ left: at(min), right: `calc(100% - ${at(max)})` }} />
        </span>
        <input
          ref={low}
          id="min"
          type="range"
          aria-label={`Least ${word}`}
          min={lowest}
          max="1"
          step="0.01"
          value={min}
          onInput={(event) => {
            const next = Math.min(Number(event.currentTarget.value), max);
            refine({ min: next <= lowest ? null : next });
          }}
        />
        <input
          id="max"
          type="range"
          aria-label={`Highest ${word}`}
          min={lowest}
          max="1"
          step="0.01"
          value={max}
          onInput={(event) => {
            const next = Math.max(Number(event.currentTarget.value), min);
            refine({ max: next >= 1 ? null : next });
          }}
        />
      </div>
    </fieldset>
  );
}
