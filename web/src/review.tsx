// Lists to look through: likely mislabels, and train-test near-duplicates. A tick for each, and a file of the decisions.
import type { ComponentChildren } from "preact";
import { useEffect, useMemo, useRef } from "preact/hooks";
import { columns, fraction, inputsName, load, type Inputs, type Packed, type Split } from "./data";
import { download, toCsv, type Row } from "./download";
import { ExampleLink, Name, Notice, Waiting } from "./parts";
import { className, label, number, report, writtenLabel } from "./report";
import { refine, useDecisions, useDocument, type Decision, type Route } from "./state";
import { approximate, count, percent, plural, value } from "./words";
import { pixels, VirtualGrid } from "./virtual";

interface Entry {
  key: string;
  row: Row; // what is written to the file; ids are filled in then
  named: Record<string, [Split, number]>; // the examples of its ids
  pictures: ComponentChildren;
  text: ComponentChildren;
}

interface ReviewProps {
  name: "mislabels" | "duplicates";
  title: string;
  intro: ComponentChildren;
  notice?: ComponentChildren;
  yes: string;
  no: string;
  entries: Entry[];
  empty: string;
  wide?: boolean;
  route: Route;
}

function Review({ name, title, intro, notice, yes, no, entries, empty, route }: ReviewProps) {
  const [decisions, decide, clear] = useDecisions(`${name}-${report.meta.key}`);
  const show = route.query.get("show") ?? "all";
  const shown = useMemo(
    () => entries.filter((entry) => show === "all" || (show === "open" ? !(entry.key in decisions) : entry.key in decisions)),
    [entries, show, show === "all" ? null : decisions],
  );
  const decided = entries.filter((entry) => entry.key in decisions);
  const confirmed = decided.filter((entry) => decisions[entry.key] === "yes").length;
  const focused = useRef<number | null>(null); // the place of the entry that had the focus last
  const rowsOf = () =>
    Promise.all(
      decided.map(async (entry) => {
        const row: Row = { ...entry.row, decision: decisions[entry.key] === "yes" ? yes : no };
        for (const [column, [split, index]] of Object.entries(entry.named)) row[column] = await idOf(split, index);
        return row;
      }),
    );

  useEffect(() => {
    const pressed = (event: KeyboardEvent) => {
      if (event.ctrlKey || event.metaKey || event.altKey || event.repeat) return;
      const decision: Decision | null = event.key === "y" ? "yes" : event.key === "n" ? "no" : null;
      const position = (event.target as Element).closest<HTMLElement>("[data-position]")?.dataset.position;
      const entry = position === undefined ? undefined : shown[Number(position)];
      if (!decision || !entry) return;
      event.preventDefault();
      decide(entry.key, decision);
    };
    document.addEventListener("keydown", pressed);
    return () => document.removeEventListener("keydown", pressed);
  });

  useEffect(() => {
    // an entry that leaves the list takes the focus with it: the one in its place gets it
    if (focused.current === null || document.activeElement !== document.body) return;
    const position = Math.min(focused.current, shown.length - 1);
    document.querySelector<HTMLElement>(`[data-position="${position}"] .choices button`)?.focus({ preventScroll: true });
  }, [shown]);

  return (
    <>
      <div class="title">
        <h1 tabIndex={-1}>{title}</h1>
        <p>{intro}</p>
      </div>
      {notice}
      <div class="filters review-bar">
        <div class="field">
          <span id="show-label">Show</span>
          <div class="switch" role="group" aria-labelledby="show-label">
            {[
              ["all", "all"],
              ["open", "undecided"],
              ["done", "decided"],
            ].map(([key, words]) => (
              <button key={key} type="button" aria-pressed={show === key} onClick={() => refine({ show: key === "all" ? null : key })}>
                {words}
              </button>
            ))}
          </div>
        </div>
        <p class="found" role="status">
          <b>{count(decided.length)}</b> of {count(entries.length)} decided, <b>{count(confirmed)}</b> {yes}
        </p>
        <span class="spacer" />
        <button type="button" class="button" disabled={!decided.length} onClick={async () => download(`${name}.csv`, "text/csv", toCsv(await rowsOf()))}>
          Download CSV
        </button>
        <button
          type="button"
          class="button"
          disabled={!decided.length}
          onClick={async () => download(`${name}.json`, "application/json", `${JSON.stringify(await rowsOf(), null, 1)}\n`)}
        >
          Download JSON
        </button>
        <button
          type="button"
          class="button quiet"
          disabled={!decided.length}
          onClick={() => window.confirm(`Forget all ${decided.length} decisions?`) && clear()}
        >
          Clear
        </button>
      </div>
      {shown.length === 0 && <p class="empty">{entries.length ? "Nothing left here." : empty}</p>}
      <VirtualGrid
        count={shown.length}
        minWidth={Math.min((name === "mislabels" ? 310 : 400) + (report.meta.inputs === "images" ? 0 : 100), window.innerWidth - 32)}
        gap={14}
        height={() => {
          const high = pixels(`--${name}-card`);
          return () => high;
        }}
        label={title}
        keyOf={(position) => shown[position].key}
        onPosition={(position) => (focused.current = position)}
        render={(position) => {
          const entry = shown[position];
          const decision = decisions[entry.key];
          return (
            <div class={`verdict ${name} ${decision ?? ""}`} data-key={entry.key}>
              <div class="pictures">{entry.pictures}</div>
              <div class="text">{entry.text}</div>
              <div class="choices" role="group" aria-label={`Decision about ${entry.key}`}>
                <button type="button" aria-pressed={decision === "yes"} onClick={() => decide(entry.key, "yes")}>
                  {name === "mislabels" ? "✗" : "✓"} {yes}
                </button>
                <button type="button" aria-pressed={decision === "no"} onClick={() => decide(entry.key, "no")}>
                  {name === "mislabels" ? "✓" : "✗"} {no}
                </button>
              </div>
            </div>
          );
        }}
      />
    </>
  );
}

/** Null where its file cannot be loaded: decisions are not lost with it. */
async function idOf(split: Split, index: number): Promise<string | null> {
  const inputs = await load<Inputs>(inputsName(report.meta, split, index)!).catch(() => null);
  return inputs?.ids?.[index % report.meta.chunk] ?? null;
}

/** Places for ids in a row, where the data have any. */
function idColumns(named: Entry["named"]): Pick<Entry, "named"> & { empty: Row } {
  return report.meta.ids ? { named, empty: Object.fromEntries(Object.keys(named).map((column) => [column, null])) } : { named: {}, empty: {} };
}

type Table = Record<string, Packed> & { total?: number; byChance?: number | null };

export function Mislabels({ route }: { route: Route }) {
  const table = useDocument<Table>("mislabels");
  const entries = useMemo(() => (table && !(table instanceof Error) ? mislabelEntries(table) : []), [table]);
  if (!table || table instanceof Error) return <Waiting what={table} />;
  const all = table.total ?? entries.length;
  const more = all > entries.length ? ` Showing the ${count(entries.length)} most certain of ${count(all)}.` : "";
  return (
    <Review
      name="mislabels"
      title="Likely mislabels"
      intro={
        (report.meta.predictions
          ? "Training examples for which models that never saw them agree on another label, the surest first. Below each label: what they say instead, and how many models are right without → with it in training. Rare and ambiguous examples are among them: look, then tick."
          : "Training examples that models get wrong that never saw them, the surest first: how many are right without → with it in training. Rare and ambiguous examples are among them: look, then tick.") + more
      }
      notice={!report.meta.predictions && <Notice>This run did not record predictions; one made with “--record prediction” also says which label models see instead.</Notice>}
      yes="wrong"
      no="fine"
      empty="No label is believed to be wrong."
      entries={entries}
      route={route}
    />
  );
}

function mislabelEntries(table: Table): Entry[] {
  const found = columns(table);
  return Array.from(found.index, (index, k) => {
    const code = label("train", index);
    const suggestion = found.suggestion ? found.suggestion[k] : null;
    const out = number("train", "accuracyOut", index);
    const right = number("train", "accuracyIn", index);
    const { named, empty } = idColumns({ id: ["train", index] });
    return {
      key: String(index),
      named,
      row: {
        index,
        ...empty,
        label: writtenLabel(code),
        ...(suggestion === null ? {} : { suggestion: writtenLabel(suggestion), agreement: fraction(found.agreement, k) }),
        score: fraction(found.score, k),
        memorization: number("train", "memorization", index),
        accuracy_in: right,
        accuracy_out: out,
      },
      pictures: (
        <ExampleLink split="train" index={index} side={128}>
          <span class="sr">training example {index}</span>
        </ExampleLink>
      ),
      text: (
        <>
          <p class="name">{className(code)}</p>
          {suggestion !== null && (
            <p class="suggestion">
              {className(suggestion)}? <small title="of the models that never saw it">{percent(fraction(found.agreement, k))}</small>
            </p>
          )}
          <p class="fact">
            {percent(out)} → {percent(right)} right
          </p>
          <p class="fact soft">
            train <Name split="train" index={index} />
          </p>
        </>
      ),
    };
  });
}

export function Duplicates({ route }: { route: Route }) {
  const table = useDocument<Table>("duplicates");
  const entries = useMemo(() => (table && !(table instanceof Error) ? duplicateEntries(table) : []), [table]);
  if (!table || table instanceof Error) return <Waiting what={table} />;
  const more = (table.total ?? 0) > entries.length ? `. Showing the ${count(entries.length)} most certain of them` : "";
  return (
    <Review
      name="duplicates"
      title="Near-duplicates"
      intro={`Test examples that are lost without one training example, as if it were the same. There are ${plural(table.total ?? 0, "pair")}; about ${approximate(table.byChance ?? null)} would be found by chance${more}. On the left is the training example, on the right the test example.`}
      yes="duplicate"
      no="different"
      empty="No pair of a training and a test example has an influence of 0.4 or more."
      entries={entries}
      route={route}
    />
  );
}

function duplicateEntries(table: Table): Entry[] {
  const found = columns(table);
  return Array.from(found.train, (train, k) => {
    const test = found.test[k];
    const influence = fraction(found.influence, k);
    const { named, empty } = idColumns({ train_id: ["train", train], test_id: ["test", test] });
    return {
      key: `${train}-${test}`,
      named,
      row: {
        train_index: train,
        test_index: test,
        ...empty,
        train_label: writtenLabel(label("train", train)),
        test_label: writtenLabel(label("test", test)),
        influence,
        lower: fraction(found.lower, k),
        upper: fraction(found.upper, k),
        same_outcome: fraction(found.sameOutcome, k),
      },
      pictures: (
        <>
          <ExampleLink split="train" index={train} side={window.innerWidth < 720 ? 96 : 124}>
            <span class="sr">training example {train}</span>
          </ExampleLink>
          <ExampleLink split="test" index={test} side={window.innerWidth < 720 ? 96 : 124}>
            <span class="sr">test example {test}</span>
          </ExampleLink>
        </>
      ),
      text: (
        <>
          <p class="name">{className(label("train", train))}</p>
          <p class="fact hot">influence {value(influence)}</p>
          <p class="fact">
            {value(fraction(found.lower, k))} to {value(fraction(found.upper, k))}
          </p>
          <p class="fact soft">
            train <Name split="train" index={train} />
          </p>
          <p class="fact soft">
            test <Name split="test" index={test} />
          </p>
        </>
      ),
    };
  });
}
