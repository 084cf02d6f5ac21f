#!/usr/bin/env node
// Takes pictures of pages to look at: shoot.mjs FOLDER PAGE... (wide and narrow, light and dark).

import { mkdirSync, writeFileSync } from "node:fs";
import { basename, join, resolve } from "node:path";
import { pathToFileURL } from "node:url";
import { launch } from "./browser.mjs";

const [folder, ...pages] = process.argv.slice(2);
mkdirSync(folder, { recursive: true });
const browser = await launch();
for (const page of pages) {
  for (const [width, dark] of [[1440, false], [1440, true], [400, false], [400, true]]) {
    const shown = await browser.open(pathToFileURL(resolve(page)).href, { width, height: 900, dark });
    await shown.ready();
    await shown.settled();
    const name = `${basename(page, ".html")}-${width}${dark ? "-dark" : ""}.png`;
    writeFileSync(join(folder, name), await shown.screenshot(true));
    console.log(name, shown.errors, shown.requests);
  }
}
await browser.close();
