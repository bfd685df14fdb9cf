// One training example: how it is memorized, and whom it carries. One test example: who carries it.
import type { ComponentChildren } from "preact";
import { columns, fraction, NOBODY, type Packed, type Split } from "./data";
import { Caption, ExampleLink, Input, Interval, Meter, Name, SPLIT_WORD, useId, Waiting } from "./parts";
import { className, label, number, ordered, report, size, walk } from "./report";
import { href, useDocument } from "./state";
import { count, percent, plural, value } from "./words";

interface Lists {
  index: Packed;
  influence: Packed;
  lower: Packed;
  upper: Packed;
  accuracyIn: Packed;
  accuracyOut: Packed;
  believed?: Packed;
}

interface Chunk {
  lower: Packed;
  upper: Packed;
  trialsIn: Packed;
  trialsOut: Packed;
  carried: Lists;
  similar: Packed;
  similarity: Packed;
  carriers: Lists;
  harmful: Lists;
  said?: Packed;
  saidShare?: Packed;
}

/** The examples before and after this one, in the gallery that was seen last. */
export function neighbours(split: Split, index: number): { before: number | null; after: number | null; place: number; of: number } {
  const fitting = walk.split === split && walk.order.length > 0;
  const order = fitting ? walk.order : ordered(split, split === "train" ? "memorized" : "influence");
  const place = order.indexOf(index);
  const full = place >= 0 ? order : ordered(split, "index");
  const at = place >= 0 ? place : index;
  return { before: at > 0 ? full[at - 1] : null, after: at + 1 < full.length ? full[at + 1] : null, place: at, of: full.length };
}

export function Example({ split, index }: { split: Split; index: number }) {
  const { meta } = report;
  const known = Number.isInteger(index) && index >= 0 && index < size(split);
  const chunk = useDocument<Chunk>(known ? `${split}-${Math.floor(index / meta.chunk)}` : null);
  const id = useId(split, known ? index : 0);
  if (!known) {
    return (
      <div class="title">
        <h1 tabIndex={-1}>No such example</h1>
        <p>
          There are {count(size(split))} {SPLIT_WORD[split]} examples, from 0 to {size(split) - 1}.
        </p>
      </div>
    );
  }
  const near = neighbours(split, index);
  const code = label(split, index);
  const back = walk.from && walk.split === split ? walk.from : href("gallery", { split: split === "test" ? "test" : null });
  return (
    <article class="page">
      <nav class="steps" aria-label="Examples">
        <a href={back}>← Examples</a>
        <span class="spacer" />
        {near.before !== null && (
          <a rel="prev" href={href(`${split}/${near.before}`)}>
            ‹ previous
          </a>
        )}
        <span class="soft place">
          {count(near.place + 1)} of {count(near.of)}
        </span>
        {near.after !== null && (
          <a rel="next" href={href(`${split}/${near.after}`)}>
            next ›
          </a>
        )}
      </nav>
      <div class="portrait">
        <div class={meta.inputs === "images" ? "frame large" : "frame large paper"}>
          <Input split={split} index={index} side={Math.min(320, document.documentElement.clientWidth - 48)} full />
        </div>
        <div class="facts">
          <p class="kicker">
            {SPLIT_WORD[split]} example {index}
          </p>
          <h1 tabIndex={-1}>{className(code)}</h1>
          {id && <p class="id">id {id}</p>}
          {split === "train" ? <TrainScores index={index} chunk={chunk} /> : <TestScores index={index} />}
          {chunk && !(chunk instanceof Error) && <Said split={split} index={index} chunk={chunk} code={code} />}
          <p class="links">
            <a href={href("gallery", { split: split === "test" ? "test" : null, class: code })}>All examples of {className(code)}</a>
          </p>
        </div>
      </div>
      {!chunk || chunk instanceof Error ? (
        <Waiting what={chunk} />
      ) : split === "train" ? (
        <TrainLists index={index} chunk={chunk} />
      ) : (
        <TestLists index={index} chunk={chunk} />
      )}
    </article>
  );
}

function TrainScores({ index, chunk }: { index: number; chunk: Chunk | Error | undefined }) {
  const { meta } = report;
  const mem = number("train", "memorization", index);
  const there = chunk && !(chunk instanceof Error) ? columns(chunk) : null;
  const k = index % meta.chunk;
  const lower = there ? fraction(there.lower, k) : NaN;
  const upper = there ? fraction(there.upper, k) : NaN;
  return (
    <>
      <div class="score">
        <span class="big">{value(mem)}</span>
        <span>
          memorization
          <small>
            {Number.isNaN(mem)
              ? "the trials cannot give it yet"
              : `95% interval ${value(lower)} to ${value(upper)}, standard error ${value(number("train", "stderr", index), 3)}`}
          </small>
        </span>
      </div>
      {!Number.isNaN(mem) && (
        <>
          <Interval value={mem} lower={lower} upper={upper} threshold={meta.facts.thresholds.memorization} from={-0.25} ticks={[0, meta.facts.thresholds.memorization, 1]} />
          <p class="reading">{reading(number("train", "accuracyIn", index), number("train", "accuracyOut", index))}</p>
        </>
      )}
      <Bars
        title="Models that are right on it"
        rows={[
          ["trained on it", number("train", "accuracyIn", index), "hot", there ? plural(there.trialsIn[k], "model") : ""],
          ["never saw it", number("train", "accuracyOut", index), "cold", there ? plural(there.trialsOut[k], "model") : ""],
        ]}
      />
    </>
  );
}

/** What the two accuracies say together; docs/reading.md has the same table. */
function reading(kept: number, heldOut: number): string {
  if (kept >= 0.75 && heldOut >= 0.75) return "Models are right on it anyway: the other examples teach it.";
  if (kept >= 0.75 && heldOut <= 0.25) return "Models are right on it only if they saw it: it is rare, ambiguous or mislabeled.";
  if (kept <= 0.25 && heldOut <= 0.25) return "Models are wrong on it even if they saw it: often a wrong label that the learner does not fit.";
  return "Models disagree on it: look at the interval.";
}

function TestScores({ index }: { index: number }) {
  const accuracy = number("test", "accuracy", index);
  const pairs = report.test.pairs[index];
  return (
    <>
      <div class="score">
        <span class="big">{percent(accuracy)}</span>
        <span>
          of all models are right
          <small>{pairs ? `it depends on ${plural(pairs, "training example")}` : "it depends on no single training example"}</small>
        </span>
      </div>
      <Meter value={accuracy} tone="cold" />
    </>
  );
}

function Bars({ title, rows }: { title: ComponentChildren; rows: [string, number, "hot" | "cold" | "soft", string][] }) {
  return (
    <table class="bars">
      <caption>{title}</caption>
      <tbody>
        {rows.map(([name, share, tone, note]) => (
          <tr key={name}>
            <th scope="row">{name}</th>
            <td class="chart">
              <Meter value={share} tone={tone} />
            </td>
            <td class="amount">{percent(share)}</td>
            <td class="note">{note}</td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}

function Said({ split, index, chunk, code }: { split: Split; index: number; chunk: Chunk; code: number }) {
  if (!chunk.said || !chunk.saidShare) return null;
  const { said, saidShare } = columns(chunk);
  const across = said.length / inChunk(split, index);
  const start = (index % report.meta.chunk) * across;
  const rows: [string, number, "hot" | "cold" | "soft", string][] = [];
  for (let k = start; k < start + across; k++) {
    const answer = said[k];
    if (answer === undefined || answer >= report.meta.classes.length) continue;
    rows.push([className(answer), fraction(saidShare, k), answer === code ? "cold" : "soft", answer === code ? "the label" : ""]);
  }
  if (!rows.length) return null;
  return <Bars title={split === "train" ? "What models say that never saw it" : "What models say"} rows={rows} />;
}

interface Row {
  index: number;
  influence: number;
  lower: number;
  upper: number;
  accuracyIn: number;
  accuracyOut: number;
  believed: boolean;
}

function listed(lists: Lists, index: number, n: number): Row[] {
  const found = columns(lists);
  const across = found.index.length / n;
  const start = (index % report.meta.chunk) * across;
  const rows: Row[] = [];
  for (let k = start; k < start + across; k++) {
    if (found.index[k] === NOBODY) continue;
    rows.push({
      index: found.index[k],
      influence: fraction(found.influence, k),
      lower: fraction(found.lower, k),
      upper: fraction(found.upper, k),
      accuracyIn: fraction(found.accuracyIn, k),
      accuracyOut: fraction(found.accuracyOut, k),
      believed: Boolean(found.believed?.[k]),
    });
  }
  return rows;
}

function inChunk(split: Split, index: number): number {
  const { chunk } = report.meta;
  const start = Math.floor(index / chunk) * chunk;
  return Math.min(chunk, size(split) - start);
}

/** `hurts`: on a line from -1 to 0.25 rather than from -0.25 to 1. */
function Influences({ split, rows, hurts }: { split: Split; rows: Row[]; hurts?: boolean }) {
  return (
    <ul class="influences">
      {rows.map((row) => (
        <li key={row.index} class={row.believed || row.influence < 0 ? "" : "weak"}>
          <ExampleLink split={split} index={row.index} side={112}>
            <span class="caption">
              <span class={row.influence < 0 ? "fact cold" : "fact hot"}>
                {row.influence > 0 ? "+" : ""}
                {value(row.influence)}
              </span>
              <Interval value={row.influence} lower={row.lower} upper={row.upper} from={hurts ? -1 : -0.25} to={hurts ? 0.25 : 1} />
              <span class="fact">
                {percent(row.accuracyOut)} → {percent(row.accuracyIn)}
              </span>
              <span class="fact soft">
                {split} <Name split={split} index={row.index} />
              </span>
            </span>
          </ExampleLink>
        </li>
      ))}
    </ul>
  );
}

function TrainLists({ index, chunk }: { index: number; chunk: Chunk }) {
  const n = inChunk("train", index);
  const carried = listed(chunk.carried, index, n);
  const { similar, similarity } = columns(chunk);
  const across = similar.length / n;
  const start = (index % report.meta.chunk) * across;
  const alike: [number, number][] = [];
  for (let k = start; k < start + across; k++) if (similar[k] !== NOBODY) alike.push([similar[k], fraction(similarity, k)]);
  const pairs = report.train.pairs[index];
  return (
    <>
      <section>
        <h2>Test examples it carries</h2>
        <p class="hint">
          {pairs ? `${plural(pairs, "test example depends", "test examples depend")} on it. ` : carried.length ? "No test example depends on it; these it helps most. " : ""}
          Below each: its influence with a 95% interval on a line from −0.25 to 1, and how many models are right without → with this
          example in training. Pale numbers cannot be told from chance. Only test examples of the same class are looked at.
        </p>
        {carried.length ? <Influences split="test" rows={carried} /> : <p class="empty">It helps no test example.</p>}
      </section>
      {alike.length > 0 && (
        <section>
          <h2>Most similar influences</h2>
          <p class="hint">
            Training examples of the class whose influence on its test examples correlates most with this one's. With few
            trials much of it is chance.
          </p>
          <ul class="influences">
            {alike.map(([other, correlation]) => (
              <li key={other}>
                <ExampleLink split="train" index={other} side={112}>
                  <Caption split="train" index={other} />
                  <span class="fact soft">correlation {value(correlation)}</span>
                </ExampleLink>
              </li>
            ))}
          </ul>
        </section>
      )}
    </>
  );
}

function TestLists({ index, chunk }: { index: number; chunk: Chunk }) {
  const n = inChunk("test", index);
  const carriers = listed(chunk.carriers, index, n);
  const harmful = listed(chunk.harmful, index, n);
  return (
    <>
      <section>
        <h2>Who carries it</h2>
        <p class="hint">
          Training examples of its class that help it most. Below each: its influence with a 95% interval on a line from −0.25 to 1,
          and how many models are right without → with it in training. Pale numbers cannot be told from chance.
        </p>
        {carriers.length ? <Influences split="train" rows={carriers} /> : <p class="empty">No training example helps it.</p>}
      </section>
      {harmful.length > 0 && (
        <section>
          <h2>Who hurts it most</h2>
          <p class="hint">The line goes from −1 to 0.25.</p>
          <Influences split="train" rows={harmful} hurts />
        </section>
      )}
    </>
  );
}
