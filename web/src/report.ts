// The report that is shown: its facts and the columns of all examples, and orders of them.
import { columns, fraction, MISSING, type Columns, type Meta, type Split } from "./data";
import { value } from "./words";

export interface Report {
  meta: Meta;
  train: Columns;
  test: Columns;
}

export let report: Report;

export function setReport(meta: Meta, train: object = {}, test: object = {}): void {
  report = { meta, train: columns(train), test: columns(test) };
}

export function size(split: Split): number {
  return split === "train" ? report.meta.nTrain : report.meta.nTest;
}

export function label(split: Split, index: number): number {
  return report[split].label[index];
}

export function className(code: number): string {
  return report.meta.classes[code] ?? "–";
}

export function number(split: Split, column: string, index: number): number {
  return fraction(report[split][column], index);
}

/** A class as its owner wrote it, for files. */
export function writtenLabel(code: number): string {
  return (report.meta.labels ?? report.meta.classes)[code] ?? "";
}

export type Sort = { column: string; down: boolean };

export const SORTS: Record<Split, Record<string, [string, string, boolean]>> = {
  train: {
    memorized: ["most memorized", "memorization", true],
    typical: ["most typical", "accuracyOut", true],
    influence: ["highest influence", "strongest", true],
    uncertain: ["most uncertain", "stderr", true],
    certain: ["least uncertain", "stderr", false],
    heldout: ["hardest when held out", "accuracyOut", false],
    index: ["index", "", false],
  },
  test: {
    influence: ["highest influence", "strongest", true],
    hard: ["hardest", "accuracy", false],
    easy: ["easiest", "accuracy", true],
    index: ["index", "", false],
  },
};

const orders = new Map<string, Uint32Array>();

/** All examples of a split in that order, what is not known last; ties to what is surer, then to the higher influence. */
export function ordered(split: Split, sort: string): Uint32Array {
  const key = `${split} ${sort}`;
  let order = orders.get(key);
  if (!order) {
    order = new Uint32Array(size(split));
    for (let k = 0; k < order.length; k++) order[k] = k;
    const [, column, down] = SORTS[split][sort];
    if (column) {
      const values = report[split][column];
      const rank = (index: number) => (values[index] === MISSING ? 1e9 : down ? -values[index] : values[index]);
      const { stderr, strongest } = report[split];
      const surer = (a: number, b: number) => (stderr ? unsure(stderr[a]) - unsure(stderr[b]) : 0);
      order.sort((a, b) => rank(a) - rank(b) || surer(a, b) || strongest[b] - strongest[a] || a - b);
    }
    orders.set(key, order);
  }
  return order;
}

function unsure(error: number): number {
  return error === MISSING ? 1e9 : error;
}

/** The first examples of an order with an estimate, one of each class, then a second one, until there are so many. */
export function oneOfEach(order: Uint32Array, most: number): number[] {
  const queues = new Map<number, number[]>();
  const classes = report.meta.classes.length;
  let full = 0;
  for (const index of order) {
    if (report.train.memorization[index] === MISSING) continue;
    const code = report.train.label[index];
    const queue = queues.get(code) ?? [];
    queues.set(code, queue);
    if (queue.length < most && queue.push(index) === most) full++;
    if (queues.size >= most || full === classes) break;
  }
  const found: number[] = [];
  for (let round = 0; found.length < most; round++) {
    const next = [...queues.values()].flatMap((queue) => queue.slice(round, round + 1));
    if (!next.length) break;
    found.push(...next.slice(0, most - found.length));
  }
  return found;
}

/** A number of the page's scale from -1 to 1 as it is measured: in the unit of the learner's scores, where it has some. */
export function scoreOf(share: number | null): string {
  if (share === null || Number.isNaN(share)) return value(share);
  const { unit } = report.meta.facts;
  return value(share * unit, report.meta.scores && unit >= 100 ? 1 : 2);
}

/** Whether most models that saw a training example are right on it, or it is memorized; so is the map of the long tail made. */
export function isLearned(index: number): boolean {
  const { accuracyIn, memorization } = report.train;
  return accuracyIn[index] >= 5000 || fraction(memorization, index) >= report.meta.facts.thresholds.memorization;
}

/** The order in which j and k, or the arrows, go through examples: the gallery that was seen last. */
export const walk: { split: Split; order: Uint32Array; from: string } = {
  split: "train",
  order: new Uint32Array(0),
  from: "",
};

export interface ClassRow {
  code: number;
  train: number;
  test: number;
  memorization: number;
  memorized: number; // share
  accuracyIn: number;
  accuracyOut: number;
  testAccuracy: number;
  pairs: number;
}

let rows: ClassRow[] | null = null;

/** What is known of each class: means over its examples. */
export function classRows(): ClassRow[] {
  if (rows) return rows;
  const { meta, train, test } = report;
  const threshold = meta.facts.thresholds.memorization;
  const sums = meta.classes.map(() => ({ train: 0, known: 0, mem: 0, high: 0, in: 0, nIn: 0, out: 0, nOut: 0, pairs: 0, test: 0, right: 0 }));
  for (let k = 0; k < meta.nTrain; k++) {
    const sum = sums[train.label[k]];
    sum.train++;
    sum.pairs += train.pairs[k];
    const mem = fraction(train.memorization, k);
    const right = fraction(train.accuracyIn, k);
    const out = fraction(train.accuracyOut, k);
    if (!Number.isNaN(mem)) {
      sum.known++;
      sum.mem += mem;
      if (mem >= threshold) sum.high++;
    }
    if (!Number.isNaN(right)) (sum.nIn++, (sum.in += right));
    if (!Number.isNaN(out)) (sum.nOut++, (sum.out += out));
  }
  for (let k = 0; k < meta.nTest; k++) {
    const sum = sums[test.label[k]];
    sum.test++;
    sum.right += fraction(test.accuracy, k);
  }
  rows = sums.map((sum, code) => ({
    code,
    train: sum.train,
    test: sum.test,
    memorization: sum.mem / sum.known,
    memorized: sum.high / sum.known,
    accuracyIn: sum.in / sum.nIn,
    accuracyOut: sum.out / sum.nOut,
    testAccuracy: sum.right / sum.test,
    pairs: sum.pairs,
  }));
  return rows;
}
