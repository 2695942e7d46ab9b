// Builds `built/` from `src/`: one script and one style sheet. `--check` only compares what is there with what would be built.
// The first line of the script has the checksum of the sources, which a test of the crate compares without node.
import { readFileSync, readdirSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { build } from "esbuild";

const root = import.meta.dirname;

function files(folder) {
  return readdirSync(join(root, folder)).flatMap((name) => {
    const path = `${folder}/${name}`;
    return statSync(join(root, path)).isDirectory() ? files(path) : [path];
  });
}

// FNV-1a with 64 bits, as in ../src/dashboard.rs.
const sources = files("src").sort();
let sum = 0xcbf29ce484222325n;
for (const path of sources) {
  for (const part of [Buffer.from(`${path}\n`), readFileSync(join(root, path))]) {
    for (const byte of part) sum = BigInt.asUintN(64, (sum ^ BigInt(byte)) * 0x100000001b3n);
  }
}
const checksum = sum.toString(16).padStart(16, "0");

// Every text has a Chinese one.
const { zh } = await import("data:text/javascript," + encodeURIComponent(
  (await build({ entryPoints: [join(root, "src/chinese.ts")], bundle: true, format: "esm", write: false })).outputFiles[0].text));
const missing = new Set();
const unused = new Set(Object.keys(zh));
for (const path of sources.filter((path) => path.endsWith(".ts"))) {
  for (const [, text] of readFileSync(join(root, path), "utf8").matchAll(/\bt\(\s*"((?:[^"\\]|\\.)*)"/g)) {
    unused.delete(JSON.parse(`"${text}"`));
    if (!(JSON.parse(`"${text}"`) in zh)) missing.add(text);
  }
}
if (missing.size > 0) {
  console.error("without a Chinese text in src/chinese.ts:\n" + [...missing].map((text) => `  ${JSON.stringify(text)}: "",`).join("\n"));
  process.exit(1);
}

if (unused.size > 0) {
  console.error(`used nowhere: ${[...unused].join("; ")}`);
  process.exit(1);
}

const outputs = await build({
  entryPoints: { dashboard: join(root, "src/main.ts"), style: join(root, "src/style.css") },
  bundle: true, minify: true, format: "esm", target: "es2022", charset: "utf8", legalComments: "none",
  outdir: join(root, "built"), write: false,
});
const built = new Map(outputs.outputFiles.map((file) => [file.path.split("/").pop(), file.text]));
built.set("dashboard.js", `// sources ${checksum}\n${built.get("dashboard.js")}`);
let total = 0;
let stale = false;
for (const [name, text] of built) {
  total += Buffer.byteLength(text);
  const path = join(root, "built", name);
  if (process.argv.includes("--check")) {
    if (readFileSync(path, "utf8") !== text) {
      console.error(`built/${name} is not what the sources make: npm run build`);
      stale = true;
    }
  } else {
    writeFileSync(path, text);
  }
}
console.log(`${total} bytes`);
process.exit(stale ? 1 : 0);
