import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { gzipSync } from "node:zlib";

import * as module from "../whitelie.js";

const read = (name) => readFileSync(new URL(`../${name}`, import.meta.url), "utf8");
const source = read("whitelie.js");
const types = read("whitelie.d.ts");
const about = JSON.parse(read("package.json"));

test("the module is at most 6 kB (6,000 bytes), gzipped as it is", () => {
  const size = gzipSync(source, { level: 9 }).length;
  assert.ok(size <= 6000, `${size} bytes`);
});

test("secrets come from the platform's generator only", () => {
  assert.ok(!source.includes("Math.random"));
  assert.ok(source.includes("crypto.getRandomValues"));
});

test("the source names no host, imports nothing, and does not listen", () => {
  assert.doesNotMatch(source, /https?:|wss?:|\bimport\b|\brequire\b|sendBeacon|addEventListener|keepalive|cookie/);
});

test("types and exports are the same", () => {
  const declared = [...types.matchAll(/^export (?:declare )?(?:function|const|class) (\w+)/gm)].map(([, name]) => name);
  assert.deepEqual(declared.sort(), Object.keys(module).sort());
});

const members = (name) => {
  const [, body] = types.match(new RegExp(`(?:interface|class) ${name} \\{([\\s\\S]*?)\\n\\}`));
  return [...body.matchAll(/^ {2}(\w+)\??[:(]/gm)].map(([, member]) => member).sort();
};

test("the types have the client's methods and the choice's fields", async () => {
  const store = { getItem() {}, setItem() {}, removeItem() {}, keys: () => [] };
  const client = new module.Whitelie({ server: "", key: "", store });
  const methods = members("Whitelie").filter((name) => name !== "constructor");
  assert.deepEqual(methods, Object.keys(client).sort());
  assert.deepEqual(members("Choice"), Object.keys(await client.decide("x", { force: "a" })).sort());
});

test("types, source, contract and README have the same options", () => {
  const [, parameters] = source.match(/Whitelie\(\{([\s\S]*?)\n\} = \{\}\)/);
  const options = [...parameters.matchAll(/^ {2}(\w+)/gm)].map(([, name]) => name).sort();
  assert.deepEqual(members("Options"), options);
  const rows = (text) => [...text.matchAll(/^\| `(\w+)` \|/gm)].map(([, name]) => name);
  for (const name of options) assert.ok(rows(read("README.md")).includes(name), name);
  for (const name of rows(read("../CONTRACT.md"))) assert.ok(options.includes(name), name);
});

test("the package is as a page's maintainer wants it", () => {
  assert.equal(about.name, "whitelie");
  assert.equal(about.type, "module");
  assert.equal(about.license, "MIT");
  assert.equal(about.sideEffects, false);
  assert.equal(about.scripts.test, "node --test");
  for (const kind of ["dependencies", "devDependencies", "peerDependencies"]) assert.ok(!(kind in about));
  for (const file of [...about.files, ...Object.values(about.exports["."])]) read(file);
});

test("options are optional but for the service", () => {
  assert.match(types, /^ {2}server: string/m);
  assert.match(types, /^ {2}key: string/m);
});
