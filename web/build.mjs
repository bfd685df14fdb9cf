// Bundles src/ into one classic script and one style sheet, which are committed: users need no Node.
// Their first line holds the digest of all sources; a test compares it, without Node.
import { createHash } from "node:crypto";
import { readFileSync, readdirSync } from "node:fs";
import { build } from "esbuild";

const digest = createHash("sha256");
const sources = ["build.mjs", "package-lock.json", ...readdirSync("src").map((name) => `src/${name}`)].sort();
for (const name of sources) digest.update(`${name}\0`).update(readFileSync(name));
const banner = `/* memfluence explorer, built from web/ ${digest.digest("hex")}; with preact (MIT) and @tanstack/virtual-core (MIT) */`;

await build({
  entryPoints: { explorer: "src/main.tsx" },
  outdir: "../src/memfluence/report/explorer/assets",
  bundle: true,
  minify: true,
  format: "iife", // file:// refuses module scripts
  target: ["chrome123", "firefox121", "safari17.5"], // light-dark()
  jsx: "automatic",
  jsxImportSource: "preact",
  charset: "ascii",
  legalComments: "none",
  banner: { js: banner, css: banner },
});
