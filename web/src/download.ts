// Files of decisions, made in the page.
export type Row = Record<string, string | number | null>;

/** RFC 4180. A text that a spreadsheet would run as a formula gets an apostrophe; the JSON has it as it is. */
export function toCsv(rows: Row[]): string {
  if (!rows.length) return "";
  const cell = (value: string | number | null) => {
    if (value === null || (typeof value === "number" && Number.isNaN(value))) return "";
    if (typeof value === "number") return String(value);
    const safe = /^[=+\-@\t\r]/.test(value) && Number.isNaN(Number(value)) ? `'${value}` : value;
    return /[",\r\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
  };
  const names = Object.keys(rows[0]);
  return [names.join(","), ...rows.map((row) => names.map((name) => cell(row[name])).join(","))].join("\r\n") + "\r\n";
}

export function download(name: string, type: string, content: string): void {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([content], { type }));
  link.download = name;
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}
