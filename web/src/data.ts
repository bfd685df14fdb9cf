// Data arrive as classic scripts that call memfluence.take(name, document): the one way that file:// allows. Each is
// loaded when it is first asked for. Fractions are 16-bit integers in steps of 0.0001; the lowest one means unknown.

export type Packed = ["u1" | "u2" | "u4" | "i2", string];
export type Numbers = Uint8Array | Uint16Array | Uint32Array | Int16Array;
export type Split = "train" | "test";

export interface Facts {
  unit: number; // what is 1 on the page, of scores of the learner's own
  trials: number;
  trialsWanted: number;
  keep: number | null;
  accuracyIn: number | null;
  accuracyOut: number | null;
  testAccuracy: number | null;
  trialsIn: number;
  trialsOut: number;
  stderr: number | null;
  stderrOfMemorized: number | null;
  surelyMemorized: number;
  memorized: number;
  known: number;
  meanMemorization: number | null;
  histogram: { edges: number[]; counts: number[]; missing: number };
  thresholds: { memorization: number; influence: number };
  pairs: Summary & { tested: number; rate: number; believed: Summary; atLeast: AtLeast };
}

interface Summary {
  pairs: number;
  train_examples: number;
  test_examples: number;
  single_test_examples: number;
}

/** Pairs that reach each threshold on influence, 0 to 1 in so many steps: found, believed, and by chance. */
export interface AtLeast {
  steps: number;
  found: number[];
  believed: number[];
  chance: number[][];
}

export interface Sheet {
  side: number;
  margin: number;
  across: number;
}

export interface Meta {
  title: string;
  notices: string[];
  classes: string[];
  labels: string[] | null;
  version: string;
  key: string;
  nTrain: number;
  nTest: number;
  chunk: number;
  predictions: boolean;
  scores: boolean; // of the learner's own, rather than right and wrong
  found: { mislabels: number; duplicates: number };
  inputs: "images" | "texts" | "features" | "none";
  ids: boolean;
  sheet?: Sheet;
  facts: Facts;
}

export interface Inputs {
  texts?: string[];
  names?: string[];
  features?: [number, string][][];
  more?: number[];
  ids?: string[];
}

export const MISSING = -32768;
export const NOBODY = 0xffffffff;
const STEPS = 10000;

const folder = (document.currentScript as HTMLScriptElement).src.replace(/[^/]*$/, "");
const waiting = new Map<string, { resolve: (document: any) => void; reject: (reason: Error) => void }>();
const loaded = new Map<string, any>();
const asked = new Map<string, Promise<any>>();

(window as any).memfluence = {
  take(name: string, document: unknown) {
    loaded.set(name, document);
    waiting.get(name)?.resolve(document);
    waiting.delete(name);
  },
};

/** A document that is there already, or undefined. */
export function peek<T>(name: string): T | undefined {
  return loaded.get(name);
}

export function load<T>(name: string): Promise<T> {
  let found = asked.get(name);
  if (!found) {
    found = new Promise<T>((resolve, reject) => {
      if (loaded.has(name)) return resolve(loaded.get(name));
      waiting.set(name, { resolve, reject });
      if (name === "meta" || name === "map") return; // their scripts are in the page
      const script = document.createElement("script");
      script.src = `${folder}${name}.js`;
      const failed = (how: string) => {
        asked.delete(name); // may be asked for again
        reject(new Error(`The file ${name}.js of this report ${how}; is its folder complete? If it was written anew, reload the page.`));
      };
      script.onload = () => {
        script.remove();
        if (!loaded.has(name)) failed("does not hold what it should");
      };
      script.onerror = () => {
        script.remove();
        failed("could not be loaded");
      };
      document.head.append(script);
    });
    asked.set(name, found);
  }
  return found;
}

const unpackedOnce = new WeakMap<Packed, Numbers>();

export function unpack(packed: Packed): Numbers {
  let numbers = unpackedOnce.get(packed);
  if (!numbers) {
    const text = atob(packed[1]);
    const bytes = new Uint8Array(text.length);
    for (let k = 0; k < text.length; k++) bytes[k] = text.charCodeAt(k);
    const kinds = { u1: Uint8Array, u2: Uint16Array, u4: Uint32Array, i2: Int16Array };
    numbers = new kinds[packed[0]](bytes.buffer);
    unpackedOnce.set(packed, numbers);
  }
  return numbers;
}

/** Fraction k of a packed column; NaN where it is not known. */
export function fraction(numbers: Numbers, k: number): number {
  const steps = numbers[k];
  return steps === MISSING ? NaN : steps / STEPS;
}

export type Columns = Record<string, Numbers>;

const columnsOf = new WeakMap<object, Columns>();

/** All packed columns of a document, unpacked once. */
export function columns(document: any): Columns {
  let found = columnsOf.get(document);
  if (!found) {
    found = {};
    for (const [name, value] of Object.entries(document)) if (Array.isArray(value)) found[name] = unpack(value as Packed);
    columnsOf.set(document, found);
  }
  return found;
}

export function sheetUrl(split: Split, number: number): string {
  return `${folder}${split}-${number}.webp`;
}

export function mapUrl(number: number): string {
  return `${folder}map-${number}.webp`;
}

/** The text, features and id of one example: its inputs' chunk, or undefined where there is none (yet). */
export function inputsName(meta: Meta, split: Split, index: number): string | null {
  const needed = meta.inputs === "texts" || meta.inputs === "features" || meta.ids;
  return needed ? `${split}-inputs-${Math.floor(index / meta.chunk)}` : null;
}
