#!/usr/bin/env node
// forge runs this as its Solidity compiler: the npm `solc` package of the lock file behind the two native flags that forge
// uses. So the pinned toolchain comes from `npm ci` alone, and a build needs no network.
"use strict";

const fs = require("node:fs");
const path = require("node:path");
const root = path.join(__dirname, "..", "..");
const solc = require(path.join(root, "node_modules", "solc"));

/** The value after `name` on the command line, or `fallback`. */
function option(name, fallback) {
  const at = process.argv.indexOf(name);
  return at < 0 ? fallback : process.argv[at + 1];
}

// Absolute names are resolved as they are, relative ones below forge's --base-path.
function readImport(name) {
  const file = path.resolve(option("--base-path", root), name);
  try {
    return { contents: fs.readFileSync(file, "utf8") };
  } catch (error) {
    return { error: `cannot read ${file}: ${error.code}` };
  }
}

async function main() {
  if (process.argv.includes("--version")) {
    // forge parses a native platform here and refuses Emscripten's.
    console.log("solc, the solidity compiler commandline interface");
    console.log(`Version: ${solc.version().replace(".Emscripten.clang", ".Linux.g++")}`);
  } else if (process.argv.includes("--standard-json")) {
    // forge's pipes are non-blocking: the synchronous calls would fail with EAGAIN.
    let input = "";
    for await (const chunk of process.stdin.setEncoding("utf8")) input += chunk;
    process.stdout.write(solc.compile(input, { import: readImport }));
  } else {
    console.error("usage: solc.js --version | --standard-json [--base-path DIR] < input.json");
    process.exitCode = 2;
  }
}

main();
