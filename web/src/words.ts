// Numbers as a reader sees them; what is not known is a dash.
const grouped = new Intl.NumberFormat("en-US");

export const UNKNOWN = "–";

export function value(number: number | null, decimals = 2): string {
  if (number === null || Number.isNaN(number)) return UNKNOWN;
  const text = number.toFixed(decimals);
  return Number(text) === 0 ? text.replace("-", "") : text.replace("-", "−");
}

export function percent(share: number | null, decimals = 0): string {
  if (share === null || Number.isNaN(share)) return UNKNOWN;
  // Below 0 it is no share but a mean score of the learner's own.
  return share < -0.00005 ? value(share) : `${(100 * Math.max(0, share)).toFixed(decimals)}%`;
}

export function count(number: number): string {
  return grouped.format(Math.round(number));
}

export function approximate(number: number | null): string {
  return number === null || Number.isNaN(number) ? UNKNOWN : number > 0 && number < 10 ? number.toFixed(1) : count(number);
}

export function plural(number: number, one: string, many = `${one}s`): string {
  return `${count(number)} ${number === 1 ? one : many}`;
}
