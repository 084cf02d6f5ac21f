// Opens the page of a recording, and jumps to its first finding: `node journey_page.mjs PAGE`.

import assert from "node:assert/strict";
import { resolve } from "node:path";
import { pathToFileURL } from "node:url";
import { launch } from "../page/browser.mjs";

const browser = await launch();
try {
  const page = await browser.open(pathToFileURL(resolve(process.argv[2])).href);
  await page.ready();
  const answer = await page.evaluate("document.getElementById('answer').textContent");
  assert.match(answer, /batches are prepared more slowly/);
  assert.match(answer, /load_batch/);
  const before = await page.evaluate("JSON.stringify([laptime.timeline.view.from, laptime.timeline.view.to])");
  await page.evaluate("document.querySelector('#answer [data-from]').click()");
  await page.settled();
  const after = await page.evaluate("JSON.stringify([laptime.timeline.view.from, laptime.timeline.view.to])");
  assert.notEqual(before, after, "a click on the finding moves the timeline");
  assert.deepEqual(page.errors, []);
  console.log("the page opens and jumps to its first finding");
} finally {
  await browser.close();
}
