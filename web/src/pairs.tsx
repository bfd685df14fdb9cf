// Pairs, as in the paper's figures: a memorized training example, and the test examples that it carries.
import { useMemo } from "preact/hooks";
import { Against, summary } from "./against";
import { columns, fraction, type Columns, type Packed } from "./data";
import { chosenClass, ClassSelect, exampleHref, ExampleLink, Name, Waiting } from "./parts";
import { className, label, number, report } from "./report";
import { numberIn, refine, useDocument, type Route } from "./state";
import { count, percent, plural, value } from "./words";
import { pixels, VirtualGrid } from "./virtual";

export type PairTable = Record<string, Packed>;

export interface Pair {
  test: number;
  influence: number;
  lower: number;
  upper: number;
  accuracyIn: number;
  accuracyOut: number;
}

export interface Group {
  train: number;
  pairs: Pair[]; // strongest first
}

const SHOWN = 4; // places for test examples on a card; the last one says how many more there are

/** Pairs by training example, in the order of its highest influence: pairs come strongest first. */
export function groupsOf(table: Columns, believed: boolean, least = -1, code = -1): Group[] {
  const found = new Map<number, Group>();
  for (let k = 0; k < table.train.length; k++) {
    const train = table.train[k];
    const influence = fraction(table.influence, k);
    if (influence < least || (believed && !table.believed[k]) || (code >= 0 && label("train", train) !== code)) continue;
    let group = found.get(train);
    if (!group) found.set(train, (group = { train, pairs: [] }));
    group.pairs.push({
      test: table.test[k],
      influence,
      lower: fraction(table.lower, k),
      upper: fraction(table.upper, k),
      accuracyIn: fraction(table.accuracyIn, k),
      accuracyOut: fraction(table.accuracyOut, k),
    });
  }
  return [...found.values()];
}

export function PairGroup({ group }: { group: Group }) {
  const side = 88;
  const mem = number("train", "memorization", group.train);
  const shown = group.pairs.length > SHOWN ? SHOWN - 1 : SHOWN;
  const more = group.pairs.length - shown;
  return (
    <div class="group">
      <div class="carrier">
        <ExampleLink split="train" index={group.train} side={side}>
          <span class="caption">
            <span class="name">{className(label("train", group.train))}</span>
            <span class="fact hot">memorization {value(mem)}</span>
            <span class="fact soft">
              train <Name split="train" index={group.train} />
            </span>
          </span>
        </ExampleLink>
      </div>
      <span class="arrow" aria-hidden="true">
        →
      </span>
      <div class="carried">
        {group.pairs.slice(0, shown).map((pair) => (
          <ExampleLink key={pair.test} split="test" index={pair.test} side={side}>
            <span class="caption">
              <span class="fact hot" title={`95% interval ${value(pair.lower)} to ${value(pair.upper)}`}>
                +{value(pair.influence)}
              </span>
              <span class="fact">
                {percent(pair.accuracyOut)} → {percent(pair.accuracyIn)}
              </span>
              <span class="fact soft">
                test <Name split="test" index={pair.test} />
              </span>
            </span>
          </ExampleLink>
        ))}
        {more > 0 && (
          <a class="more" href={exampleHref("train", group.train)}>
            +{more} more
          </a>
        )}
      </div>
    </div>
  );
}

/** Heights of cards of that width, by how many pairs they show: as many rows as style.css makes of their places. */
function groupHeight(width: number): (pairs: number) => number {
  const fit = Math.floor((width - pixels("--pair-beside")) / pixels("--pair-step"));
  const across = pixels("--pair-columns") || Math.max(1, fit);
  const [least, frame, row] = ["--pair-least", "--pair-frame", "--pair-row"].map(pixels);
  return (pairs) => Math.max(least, frame + row * Math.ceil(Math.min(SHOWN, pairs) / across));
}

export function Pairs({ route }: { route: Route }) {
  const table = useDocument<PairTable>("pairs");
  const { facts } = report.meta;
  const code = chosenClass(route.query);
  const believed = route.query.get("show") !== "all";
  const lowest = believed ? 0 : facts.thresholds.influence;
  const least = numberIn(route.query.get("min"), lowest, 1, lowest);
  const groups = useMemo(
    () => (table && !(table instanceof Error) ? groupsOf(columns(table), believed, Math.max(least, believed ? -1 : lowest), code) : []),
    [table, believed, least, code],
  );
  if (!table || table instanceof Error) return <Waiting what={table} />;
  const shown = groups.reduce((sum, group) => sum + group.pairs.length, 0);
  const kept = columns(table).train.length;
  const set = (min: number) => refine({ min: min <= lowest ? null : min });
  return (
    <>
      <div class="title">
        <h1 tabIndex={-1}>Pairs</h1>
        <p>
          On the left a memorized training example, on the right test examples of its class that depend on it. Below each: its
          influence, and how many models are right without → with the training example.
        </p>
      </div>
      <section class="card against-card">
        <h2>Found against chance</h2>
        <Against least={least} onChange={set} />
      </section>
      <form class="filters" onSubmit={(event) => event.preventDefault()}>
        <div class="field whole">
          <span id="show-label">Show</span>
          <div class="switch" role="group" aria-labelledby="show-label">
            <button type="button" aria-pressed={believed} onClick={() => refine({ show: null, min: null })}>
              believed <small>{count(facts.pairs.believed.pairs)}</small>
            </button>
            <button type="button" aria-pressed={!believed} onClick={() => refine({ show: "all", min: null })}>
              all found <small>{count(facts.pairs.pairs)}</small>
            </button>
          </div>
        </div>
        <ClassSelect chosen={code} onChange={(chosen) => refine({ class: chosen })} />
        <label class="field wide">
          <span>
            Influence at least <output>{value(least)}</output>
          </span>
          <input type="range" min={lowest} max="1" step="0.01" value={least} onInput={(event) => set(Number(event.currentTarget.value))} />
        </label>
        <p class="found" role="status">
          {plural(shown, "pair")} of {plural(groups.length, "training example")}
          {!believed && kept < facts.pairs.pairs && `; ${count(kept)} are kept here`}
        </p>
      </form>
      {code < 0 && <p class="hint">{summary(least)}</p>}
      {groups.length === 0 && (
        <p class="empty">
          {believed
            ? `No pair of this influence can be told from chance at a false discovery rate of ${percent(facts.pairs.rate)}.`
            : `No pair reaches memorization ${value(facts.thresholds.memorization)} and this influence.`}
        </p>
      )}
      <VirtualGrid
        count={groups.length}
        minWidth={Math.min(report.meta.inputs === "images" ? 560 : 1000, window.innerWidth - 32)}
        maxColumns={2}
        gap={14}
        height={(width) => {
          const high = groupHeight(width);
          return (position) => high(groups[position].pairs.length);
        }}
        label="Pairs"
        keyOf={(position) => groups[position].train}
        render={(position) => <PairGroup group={groups[position]} />}
      />
    </>
  );
}
