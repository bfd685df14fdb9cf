// Bundles src/ into one classic script and one style sheet, which are committed: users need no Node.
// Their first line holds the digest of all sources; a test compares it, without Node.
import { createHash } from "node:crypto";
import { readFileSync, readdirSync, writeFileSync } from "node:fs";
import { build } from "esbuild";

const digest = createHash("sha256");
const sources = ["build.mjs", "package-lock.json", ...readdirSync("src").map((name) => `src/${name}`)].sort();
for (const name of sources) digest.update(`${name}\0`).update(readFileSync(name));
const banner = `/* memfluence explorer, built from web/ ${digest.digest("hex")}; see licences.txt */`;

const assets = "../src/memfluence/report/explorer/assets";
const { dependencies } = JSON.parse(readFileSync("package.json", "utf8"));
const licence = (name) => `${name}\n\n${readFileSync(`node_modules/${name}/LICENSE`, "utf8").trim()}\n`;
const licences = Object.keys(dependencies).map(licence);
writeFileSync(`${assets}/licences.txt`, `explorer.js holds parts of these programs.\n\n${licences.join("\n\n")}`);

await build({
  entryPoints: { explorer: "src/main.tsx" },
  outdir: assets,
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
