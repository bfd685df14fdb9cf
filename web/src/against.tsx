// Found against chance: how many pairs reach a threshold of influence, how many permuted masks give, how many are believed.
import { useLayoutEffect, useRef, useState } from "preact/hooks";
import { report } from "./report";
import { approximate, count, percent, value } from "./words";

const HEIGHT = 230;
const LEFT = 52;
const RIGHT = 20;
const BOTTOM = 44;
const TOP = 24;

/** Pairs that reach step k of the thresholds; `chance` is NaN without permutations. */
export function reached(k: number): { found: number; believed: number; chance: number; low: number; high: number } {
  const { found, believed, chance } = report.meta.facts.pairs.atLeast;
  const counts = chance.map((one) => one[k]);
  return {
    found: found[k],
    believed: believed[k],
    chance: counts.length ? counts.reduce((sum, one) => sum + one, 0) / counts.length : NaN,
    low: Math.min(...counts),
    high: Math.max(...counts),
  };
}

/** The lowest threshold from which on at most that share of what is found is expected by chance; null if there is none. */
export function believable(): number | null {
  const { atLeast, rate } = report.meta.facts.pairs;
  const first = Math.round(report.meta.facts.thresholds.influence * atLeast.steps);
  let lowest: number | null = null;
  for (let k = atLeast.steps; k >= first; k--) {
    const { found, chance } = reached(k);
    if (found && !(chance <= rate * found)) break;
    if (found) lowest = k;
  }
  return lowest === null ? null : lowest / atLeast.steps;
}

export function summary(least: number): string {
  const { atLeast } = report.meta.facts.pairs;
  const { influence } = report.meta.facts.thresholds;
  const { found, chance, believed } = reached(Math.round(least * atLeast.steps));
  if (least < influence - 1e-9) return `Influence ${value(least)} or above: ${count(believed)} believed.`;
  const luck = Number.isNaN(chance) ? "" : `, about ${approximate(chance)} by chance`; // of scores nobody asked
  return `Influence ${value(least)} or above: ${count(found)} found${luck}, ${count(believed)} believed.`;
}

export function Against({ least, onChange }: { least: number; onChange?: (least: number) => void }) {
  const chart = useRef<SVGSVGElement>(null);
  const [width, setWidth] = useState(880); // a unit is a pixel
  useLayoutEffect(() => {
    const measure = () => setWidth(Math.max(240, Math.round(chart.current!.getBoundingClientRect().width)));
    measure();
    const observer = new ResizeObserver(measure);
    observer.observe(chart.current!);
    return () => observer.disconnect();
  }, []);
  const { atLeast, rate } = report.meta.facts.pairs;
  const { influence } = report.meta.facts.thresholds;
  const { steps } = atLeast;
  const first = Math.round(influence * steps);
  const all = Array.from({ length: steps + 1 }, (_, k) => reached(k));
  const top = Math.max(10, all[first].found, all[first].high || 0, all[0].believed);
  const x = (threshold: number) => LEFT + threshold * (width - LEFT - RIGHT);
  const base = HEIGHT - BOTTOM;
  const y = (n: number) => base - (Math.log1p(n) / Math.log1p(top)) * (base - TOP);
  const line = (of: (k: number) => number, from: number) => {
    const points = [];
    for (let k = from; k <= steps && (k === from || of(k - 1) > 0); k++) points.push(`${x(k / steps).toFixed(1)},${y(of(k)).toFixed(1)}`);
    return points.join(" ");
  };
  const band = () => {
    const some = all.map((one, k) => [k, one] as const).slice(first);
    const upper = some.map(([k, one]) => `${x(k / steps).toFixed(1)},${y(one.high).toFixed(1)}`);
    const lower = some.map(([k, one]) => `${x(k / steps).toFixed(1)},${y(one.low).toFixed(1)}`).reverse();
    return [...upper, ...lower].join(" ");
  };
  const ticks = [];
  for (let power = 1; power <= top; power *= 10) ticks.push(power);
  const mark = believable();
  const drag = (event: PointerEvent) => {
    if (!onChange || (event.type === "pointermove" && !(event.buttons & 1))) return;
    event.preventDefault();
    (event.currentTarget as Element).setPointerCapture(event.pointerId);
    const at = chart.current!.getBoundingClientRect();
    const threshold = ((event.clientX - at.left) * (width / at.width) - LEFT) / (width - LEFT - RIGHT);
    onChange(Math.round(Math.min(1, Math.max(0, threshold)) * steps) / steps);
  };
  const known = Number.isFinite(all[first].chance);
  return (
    <figure class={onChange ? "against drag" : "against"}>
      <svg ref={chart} viewBox={`0 0 ${width} ${HEIGHT}`} role="img" aria-label={`Number of pairs by threshold on influence. ${summary(least)}`} onPointerDown={drag} onPointerMove={drag}>
        {ticks.map((tick) => (
          <g key={tick} class="tick">
            <line x1={LEFT} x2={width - RIGHT} y1={y(tick)} y2={y(tick)} />
            <text x={LEFT - 8} y={y(tick) + 4} text-anchor="end">
              {count(tick)}
            </text>
          </g>
        ))}
        {known && <polygon class="chance" points={band()} />}
        {known && <polyline class="chance-line" points={line((k) => all[k].chance, first)} />}
        <polyline class="found-line" points={line((k) => all[k].found, first)} />
        <polyline class="believed-line" points={line((k) => all[k].believed, 0)} />
        {mark !== null && (
          <g class="mark">
            <line x1={x(mark)} x2={x(mark)} y1={TOP - 8} y2={base} />
            <text x={x(mark) + 6} y={TOP - 10}>
              at most {percent(rate)} by chance from {value(mark)} on
            </text>
          </g>
        )}
        <line class="axis" x1={LEFT} x2={width - RIGHT} y1={base} y2={base} />
        {[0, 0.25, 0.5, 0.75, 1].map((tick) => (
          <text key={tick} x={x(tick)} y={base + 18} text-anchor="middle">
            {tick}
          </text>
        ))}
        <text x={(LEFT + width) / 2} y={HEIGHT - 4} text-anchor="middle">
          influence at least
        </text>
        {onChange && (
          <g class="handle">
            <rect x={LEFT} width={Math.max(0, x(least) - LEFT)} y={TOP} height={base - TOP} />
            <line x1={x(least)} x2={x(least)} y1={TOP} y2={base} />
            <circle cx={x(least)} cy={base} r="8" />
          </g>
        )}
      </svg>
      <figcaption>
        <span class="key reach">found</span>{" "}
        {known && <span class="key luck">by chance: the same from masks dealt out anew, {atLeast.chance.length} times</span>}{" "}
        <span class="key sure">believed: false discovery rate at most {percent(rate)}, each pair tested</span>
      </figcaption>
    </figure>
  );
}
