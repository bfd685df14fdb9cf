// The report that is shown: its facts and the columns of all examples, and orders of them.
import { columns, fraction, MISSING, type Columns, type Meta, type Split } from "./data";

export interface Report {
  meta: Meta;
  train: Columns;
  test: Columns;
}

export let report: Report;

export function setReport(meta: Meta, train: object, test: object): void {
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
    typical: ["least memorized", "memorization", false],
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

/** All examples of a split in that order; ties to the lower index, what is not known last. */
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
      order.sort((a, b) => rank(a) - rank(b) || a - b);
    }
    orders.set(key, order);
  }
  return order;
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
