// What views are made of: an example's picture, text or features, and small charts of one number.
import type { ComponentChildren } from "preact";
import { useMemo } from "preact/hooks";
import { inputsName, sheetUrl, type Inputs, type Sheet, type Split } from "./data";
import { className, label, number, report, size } from "./report";
import { href, useDocument } from "./state";
import { count, percent, value } from "./words";

const NAME_LETTERS = 14;
export const SPLIT_WORD = { train: "training", test: "test" } as const;

export function exampleHref(split: Split, index: number): string {
  return href(`${split}/${index}`);
}

export function exampleName(split: Split, index: number): string {
  return `${SPLIT_WORD[split]} example ${index}, ${className(label(split, index))}`;
}

/** An example's input in a square of that many CSS pixels (pictures), or filling its place (texts, features). */
export function Input({ split, index, side, full }: { split: Split; index: number; side: number; full?: boolean }) {
  const { meta } = report;
  if (meta.inputs === "images") return <Picture split={split} index={index} side={side} />;
  if (meta.inputs === "none") return <span class="nothing" aria-hidden="true">{index}</span>;
  return <Written split={split} index={index} full={full} />;
}

function Picture({ split, index, side }: { split: Split; index: number; side: number }) {
  const place = split === "train" ? report.train.place[index] : index;
  const url = (number: number) => sheetUrl(split, number);
  return <Tile sheet={report.meta.sheet!} url={url} place={place} of={size(split)} side={side} label={exampleName(split, index)} />;
}

interface TileProps {
  sheet: Sheet;
  url: (number: number) => string;
  place: number; // among the tiles of all sheets
  of: number; // tiles
  side: number; // CSS pixels
  label?: string;
}

/** A tile of a sheet. Without a label it is what stands around it that says what it is. */
export function Tile({ sheet, url, place, of, side, label }: TileProps) {
  const tiles = sheet.across ** 2;
  const number = Math.floor(place / tiles);
  const within = place % tiles;
  const inSheet = Math.min(tiles, of - number * tiles); // the last sheet is smaller
  const step = sheet.side + 2 * sheet.margin;
  const scale = side / sheet.side;
  const wide = Math.min(sheet.across, inSheet) * step * scale;
  const high = Math.ceil(inSheet / sheet.across) * step * scale;
  const x = ((within % sheet.across) * step + sheet.margin) * scale;
  const y = (Math.floor(within / sheet.across) * step + sheet.margin) * scale;
  return (
    <span
      class="picture"
      role={label ? "img" : undefined}
      aria-label={label}
      style={{
        width: `${side}px`,
        height: `${side}px`,
        backgroundImage: `url("${url(number)}")`,
        backgroundSize: `${wide}px ${high}px`,
        backgroundPosition: `${-x}px ${-y}px`,
      }}
    />
  );
}

function Written({ split, index, full }: { split: Split; index: number; full?: boolean }) {
  const { meta } = report;
  const inputs = useDocument<Inputs>(inputsName(meta, split, index));
  if (!inputs || inputs instanceof Error) return <span class="written">{inputs ? inputs.message : "…"}</span>;
  const k = index % meta.chunk;
  if (inputs.texts) {
    const text = inputs.texts[k];
    return (
      <span class={full ? "written full" : "written"} dir="auto">
        {text.trim() ? text : <span class="soft">(blank text)</span>}
      </span>
    );
  }
  const features = inputs.features?.[k] ?? [];
  const more = inputs.more?.[k] ?? 0;
  if (!full) {
    return (
      <span class="written features">
        {features.slice(0, 5).map(([name, text]) => (
          <span key={name}>
            <i>{inputs.names![name]}</i> <b>{text}</b>
          </span>
        ))}
      </span>
    );
  }
  return (
    <table class="features">
      <caption>{more ? `The first ${features.length} features; ${more} more` : "Features"}</caption>
      <tbody>
        {features.map(([name, text]) => (
          <tr key={name}>
            <th scope="row">{inputs.names![name]}</th>
            <td>{text}</td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}

/** The id of an example (a file's name), where the data have them. */
export function useId(split: Split, index: number): string | null {
  const inputs = useDocument<Inputs>(report.meta.ids && index >= 0 ? inputsName(report.meta, split, index) : null);
  return inputs && !(inputs instanceof Error) ? (inputs.ids?.[index % report.meta.chunk] ?? null) : null;
}

/** What an example is called: its id, the end of a long one, or its index where the data have no ids. */
export function Name({ split, index }: { split: Split; index: number }) {
  const id = useId(split, index);
  if (!report.meta.ids) return <>{index}</>;
  const text = id === null ? "" : id.length > NAME_LETTERS ? `…${id.slice(1 - NAME_LETTERS)}` : id;
  return <bdi title={`id ${id ?? ""}, index ${index}`}>{text}</bdi>;
}

/** A bar from 0 to the value, between 0 and 1; negative values are drawn in the other colour. */
export function Meter({ value: share, tone = "hot" }: { value: number; tone?: "hot" | "cold" | "soft" }) {
  const wide = Number.isNaN(share) ? 0 : Math.min(1, Math.abs(share));
  return (
    <span class={`meter ${share < 0 ? "cold" : tone}`} aria-hidden="true">
      <span style={{ width: `${100 * wide}%` }} />
    </span>
  );
}

/** An estimate with its 95% interval on a line whose ends are fixed; what lies beyond is drawn at its end. */
export function Interval(props: { value: number; lower: number; upper: number; threshold?: number; from: number; to?: number; ticks?: number[] }) {
  const { from, to = 1 } = props;
  const x = (share: number) => `${(100 * (Math.min(to, Math.max(from, share)) - from)) / (to - from)}%`;
  return (
    <span class={props.ticks ? "interval ticked" : "interval"} aria-hidden="true">
      {props.threshold !== undefined && <span class="threshold" style={{ left: x(props.threshold) }} />}
      <span class="zero" style={{ left: x(0) }} />
      <span class="whisker" style={{ left: x(props.lower), right: `calc(100% - ${x(props.upper)})` }} />
      <span class={props.value < 0 ? "dot cold" : "dot"} style={{ left: x(props.value) }} />
      {props.ticks?.map((tick) => (
        <small key={tick} style={{ left: x(tick) }}>
          {tick}
        </small>
      ))}
    </span>
  );
}

/** A tile that leads to an example. */
export function ExampleLink(props: {
  split: Split;
  index: number;
  side: number;
  tabIndex?: number;
  children?: ComponentChildren;
  class?: string;
}) {
  const { split, index } = props;
  return (
    <a class={`example ${props.class ?? ""}`} href={exampleHref(split, index)} tabIndex={props.tabIndex} data-example={`${split}-${index}`}>
      <span class="frame">
        <Input split={split} index={index} side={props.side} />
      </span>
      {props.children ?? <Caption split={split} index={index} />}
    </a>
  );
}

/** The class, and one number with a bar: what the list is sorted by, or memorization, or the accuracy on a test example. */
export function Caption({ split, index, by = "" }: { split: Split; index: number; by?: string }) {
  const shown = by === "strongest" || by === "stderr" || by === "accuracyOut" ? by : split === "train" ? "memorization" : "accuracy";
  const share = number(split, shown, index);
  const [words, text] = {
    strongest: ["highest influence", `${share > 0 ? "+" : ""}${value(share)}`],
    stderr: ["standard error of memorization", `±${value(share, 3)}`],
    memorization: ["memorization", value(share)],
    accuracyOut: ["share of models that never saw it that are right", percent(share)],
    accuracy: ["share of models that are right", percent(share)],
  }[shown];
  return (
    <span class="caption">
      <span class="name">{className(label(split, index))}</span>
      <span class="line">
        <b title={words}>{text}</b>
        <Meter value={share} tone={shown.startsWith("accuracy") ? "cold" : shown === "stderr" ? "soft" : "hot"} />
        <span class="index">
          <Name split={split} index={index} />
        </span>
      </span>
    </span>
  );
}

export function Stat({ number, children, detail }: { number: string; children: ComponentChildren; detail?: ComponentChildren }) {
  return (
    <div class="stat">
      <dt>{children}</dt>
      <dd>
        <strong>{number}</strong>
        {detail && <small>{detail}</small>}
      </dd>
    </div>
  );
}

export function Notice({ children }: { children: ComponentChildren }) {
  return (
    <p class="notice">
      <span>{children}</span>
    </p>
  );
}

export function Waiting({ what }: { what: Error | undefined }) {
  return what ? <Notice>{what.message}</Notice> : <p class="waiting" aria-live="polite">Loading…</p>;
}

/** The class that a link asks for, -1 for all: where it asks for none, or for one that there is not. */
export function chosenClass(query: URLSearchParams): number {
  const text = query.get("class") ?? "";
  return /^\d+$/.test(text) && Number(text) < report.meta.classes.length ? Number(text) : -1;
}

export function ClassSelect({ chosen, onChange }: { chosen: number; onChange: (code: string) => void }) {
  const options = useMemo(
    () =>
      report.meta.classes.map((name, code) => (
        <option key={code} value={String(code)}>
          {name}
        </option>
      )),
    [], // the same ones again are skipped: there may be ten thousand
  );
  return (
    <label class="field">
      <span>Class</span>
      <select id="class" value={chosen < 0 ? "" : String(chosen)} onChange={(event) => onChange(event.currentTarget.value)}>
        <option value="">{report.meta.classes.length === 1 ? "the only class" : `all ${count(report.meta.classes.length)} classes`}</option>
        {options}
      </select>
    </label>
  );
}
