// The histogram of memorization, in plain SVG: one chart with links for bars is less than any chart library's glue, takes
// the page's colours in both themes, and is read by screen readers.
import { useLayoutEffect, useRef, useState } from "preact/hooks";
import { report } from "./report";
import { href } from "./state";
import { count, percent, plural, value } from "./words";

const HEIGHT = 250;
const LEFT = 52;
const RIGHT = 16;
const BOTTOM = 44;
const TOP = 26;

export function Histogram() {
  const chart = useRef<SVGSVGElement>(null);
  const [width, setWidth] = useState(880); // a unit is a pixel, so that words stay as large as elsewhere
  useLayoutEffect(() => {
    const measure = () => setWidth(Math.max(240, Math.round(chart.current!.getBoundingClientRect().width)));
    measure();
    const observer = new ResizeObserver(measure);
    observer.observe(chart.current!);
    return () => observer.disconnect();
  }, []);
  const { edges, counts, missing } = report.meta.facts.histogram;
  const { thresholds, memorized } = report.meta.facts;
  const top = Math.max(1, ...counts);
  const x = (share: number) => LEFT + ((share - edges[0]) / (1 - edges[0])) * (width - LEFT - RIGHT);
  const height = (n: number) => (Math.log1p(n) / Math.log1p(top)) * (HEIGHT - BOTTOM - TOP);
  const base = HEIGHT - BOTTOM;
  const ticks = [];
  for (let power = 1; power <= top; power *= 10) ticks.push(power);
  const labels = edges.filter((edge) => Math.abs((edge * 4) % 1) < 1e-9);
  const share = memorized / Math.max(1, counts.reduce((sum, n) => sum + n, 0));
  return (
    <figure class="histogram">
      <div class="share" role="img" aria-label={`${percent(share, 1)} of all are memorized`}>
        <span style={{ width: `${100 * (1 - share)}%` }} />
        <span class="high" style={{ width: `${100 * share}%` }} />
      </div>
      <p class="share-words" aria-hidden="true">
        <span>{percent(1 - share)} not memorized</span>
        <span class="hot">{percent(share)} memorized</span>
      </p>
      <svg ref={chart} viewBox={`0 0 ${width} ${HEIGHT}`} role="group" aria-label="Histogram of memorization">
        {ticks.map((tick) => (
          <g key={tick} class="tick">
            <line x1={LEFT} x2={width - RIGHT} y1={base - height(tick)} y2={base - height(tick)} />
            <text x={LEFT - 8} y={base - height(tick) + 4} text-anchor="end">
              {count(tick)}
            </text>
          </g>
        ))}
        {counts.map((n, k) => {
          const from = edges[k];
          const to = edges[k + 1];
          const high = from >= thresholds.memorization - 1e-9;
          const query = { min: value(from, 2).replace("−", "-"), max: k === counts.length - 1 ? "1" : (to - 0.0001).toFixed(4) };
          const text = `${value(from)} to ${value(to)}: ${plural(n, "training example")}`;
          const bar = (
            <>
              <rect class="hit" x={x(from)} width={x(to) - x(from)} y={TOP} height={base - TOP} />
              <rect class={high ? "bar high" : "bar"} x={x(from) + 1} width={Math.max(1, x(to) - x(from) - 2)} y={base - height(n)} height={height(n)} rx="2" />
            </>
          );
          return n ? (
            <a key={k} href={href("gallery", query)} aria-label={text}>
              <title>{text}</title>
              {bar}
            </a>
          ) : null;
        })}
        <line class="axis" x1={LEFT} x2={width - RIGHT} y1={base} y2={base} />
        {labels.map((edge) => (
          <text key={edge} class="label" x={x(edge)} y={base + 18} text-anchor="middle">
            {value(edge)}
          </text>
        ))}
        <text class="label" x={(LEFT + width) / 2} y={HEIGHT - 4} text-anchor="middle">
          memorization
        </text>
        <line class="cut" x1={x(thresholds.memorization)} x2={x(thresholds.memorization)} y1={TOP - 14} y2={base} />
        <text class="cut-label" x={x(thresholds.memorization) + 8} y={TOP - 6}>
          {count(memorized)} memorized{width >= 480 && `, at ${value(thresholds.memorization)} or above`}
        </text>
      </svg>
      <figcaption>
        Above: shares of the training examples. Below: their numbers by memorization, on a logarithmic scale. Choose a bar to see its examples.
        {missing > 0 && ` ${plural(missing, "example has", "examples have")} no estimate yet.`}
      </figcaption>
    </figure>
  );
}
