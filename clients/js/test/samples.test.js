// What earlier versions left in localStorage is sent as they would have sent it.

import assert from "node:assert/strict";
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { test } from "node:test";

import { loaded } from "../testing/sample.js";

const FOLDER = new URL("../../../tests/samples/", import.meta.url);
const VERSIONS = readdirSync(FOLDER).filter((name) => existsSync(new URL(`${name}/browser.json`, FOLDER)));
const read = (version) => JSON.parse(readFileSync(new URL(`${version}/browser.json`, FOLDER), "utf8"));

test("there are samples", () => assert.ok(VERSIONS.includes("0.1")));

for (const version of VERSIONS) {
  test(`reports that ${version} has stored are sent, to the byte`, async (t) => {
    const { time, items, sent, left } = read(version);
    const state = await loaded(t, time, items);
    assert.deepEqual(JSON.parse(JSON.stringify(state.sent)), sent);
    assert.deepEqual(
      sent.map(({ body }) => JSON.parse(body).bit),
      [1, 0, 0, 1],
    );
    assert.deepEqual(state.left, left);
    assert.equal(left.filter((name) => name.startsWith("whitelie.report.")).length, 2, "two are not due");
    assert.deepEqual(state.warnings, []);
  });

  test(`a report of ${version} that is damaged is not sent`, async (t) => {
    const { time, items, sent } = read(version);
    const name = Object.keys(items).find((each) => each.startsWith("whitelie.report."));
    const state = await loaded(t, time, { ...items, [name]: items[name].slice(0, -1) });
    assert.deepEqual(JSON.parse(JSON.stringify(state.sent)), sent.slice(1));
    assert.ok(!state.left.includes(name));
  });
}
