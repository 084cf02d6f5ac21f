// Drives headless Chromium through its DevTools protocol over a pipe, with Node alone.
//
// A page object counts what must not happen: console errors, exceptions and network requests.

import { spawn, spawnSync } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

const NAMES = [process.env.CHROMIUM, "chromium", "chromium-browser", "google-chrome", "google-chrome-stable"].filter(Boolean);
const FLAGS = [
  "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
  "--disable-component-update", "--disable-sync", "--disable-extensions", "--disable-dev-shm-usage", "--mute-audio",
  "--hide-scrollbars", "--remote-debugging-pipe",
];

export function findChromium() {
  const found = NAMES.find((name) => spawnSync(name, ["--version"], { stdio: "ignore" }).status === 0);
  if (found) return found;
  console.error("error: Chromium was not found, and the report page is tested in it\n\nhint: apt-get install -y chromium, or set CHROMIUM to the program");
  process.exit(2);
}

export async function launch() {
  const folder = mkdtempSync(join(tmpdir(), "laptime-page-"));
  const child = spawn(findChromium(), [...FLAGS, `--user-data-dir=${folder}`, "about:blank"], { stdio: ["ignore", "ignore", "ignore", "pipe", "pipe"] });
  const waiting = new Map();
  const listeners = new Map();
  let next = 1, rest = "";
  child.stdio[4].setEncoding("utf8");
  child.stdio[4].on("data", (text) => {
    const parts = (rest + text).split("\0");
    rest = parts.pop();
    parts.forEach((part) => receive(JSON.parse(part)));
  });
  const receive = (message) => {
    if (message.id === undefined) {
      listeners.get(message.sessionId)?.(message.method, message.params);
      return;
    }
    const { resolve, reject, method } = waiting.get(message.id);
    waiting.delete(message.id);
    if (message.error) reject(new Error(`${method}: ${message.error.message}`));
    else resolve(message.result);
  };
  child.on("exit", (status) => waiting.forEach(({ reject, method }) => reject(new Error(`Chromium ended (${status}) during ${method}`))));
  const send = (method, params = {}, sessionId = undefined) => new Promise((resolve, reject) => {
    const id = next++;
    waiting.set(id, { resolve, reject, method });
    child.stdio[3].write(`${JSON.stringify({ id, method, params, sessionId })}\0`);
  });
  const close = async () => {
    const ended = new Promise((resolve) => child.once("exit", resolve));
    await send("Browser.close").catch(() => child.kill());
    await ended;
    rmSync(folder, { recursive: true, force: true, maxRetries: 5 });
  };
  return { close, open: (url, options) => openPage(send, listeners, url, options) };
}

async function openPage(send, listeners, url, { width = 1440, height = 900, dark = false, script = true, before = "" } = {}) {
  const { targetId } = await send("Target.createTarget", { url: "about:blank" });
  const { sessionId } = await send("Target.attachToTarget", { targetId, flatten: true });
  const call = (method, params) => send(method, params, sessionId);
  const page = { errors: [], requests: [], call };
  listeners.set(sessionId, (method, params) => {
    if (method === "Runtime.exceptionThrown") page.errors.push(params.exceptionDetails.exception?.description ?? params.exceptionDetails.text);
    if (method === "Runtime.consoleAPICalled" && params.type === "error") page.errors.push(params.args.map((arg) => arg.value ?? arg.description).join(" "));
    if (method === "Log.entryAdded" && params.entry.level === "error") page.errors.push(`${params.entry.text} ${params.entry.url ?? ""}`);
    if (method === "Network.requestWillBeSent" && !/^(file|about|data|blob):/.test(params.request.url)) page.requests.push(params.request.url);
  });
  for (const domain of ["Page", "Runtime", "Log", "Network"]) await call(`${domain}.enable`);
  await call("Emulation.setDeviceMetricsOverride", { width, height, deviceScaleFactor: 1, mobile: width < 600 });
  await call("Emulation.setEmulatedMedia", { features: [{ name: "prefers-color-scheme", value: dark ? "dark" : "light" }] });
  if (!script) await call("Emulation.setScriptExecutionDisabled", { value: true });
  if (before) await call("Page.addScriptToEvaluateOnNewDocument", { source: before });
  await call("Page.navigate", { url });
  return Object.assign(page, actions(call, page));
}

function actions(call, page) {
  const evaluate = async (expression) => {
    const { result, exceptionDetails } = await call("Runtime.evaluate", { expression, awaitPromise: true, returnByValue: true });
    if (exceptionDetails) throw new Error(exceptionDetails.exception?.description ?? exceptionDetails.text);
    return result.value;
  };
  const mouse = (type, x, y, more = {}) => call("Input.dispatchMouseEvent", { type, x, y, button: "left", clickCount: 1, ...more });
  return {
    evaluate,
    // The page sets a mark when it is ready; an error before that is the reason why it never will be.
    ready: async () => {
      for (let tries = 0; tries < 3000; tries += 1) {
        if (await evaluate("document.documentElement?.dataset.ready === 'yes'")) return;
        if (page.errors.length) break;
        await new Promise((resolve) => setTimeout(resolve, 20));
      }
      throw new Error(`the page is not ready: ${page.errors.join("; ") || "it takes too long"}`);
    },
    // A page in the background gets no frames.
    front: () => call("Page.bringToFront"),
    // Two frames later everything that was asked for is drawn.
    settled: () => evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(true))))"),
    click: async (x, y, more) => {
      await mouse("mousePressed", x, y, more);
      await mouse("mouseReleased", x, y, more);
    },
    mouse,
    key: async (key, more = {}) => {
      await call("Input.dispatchKeyEvent", { type: "keyDown", key, text: key.length === 1 ? key : undefined, ...more });
      await call("Input.dispatchKeyEvent", { type: "keyUp", key, ...more });
    },
    type: (text) => call("Input.insertText", { text }),
    screenshot: async (whole = false) => {
      const { data } = await call("Page.captureScreenshot", { format: "png", captureBeyondViewport: whole, ...(whole ? { clip: await evaluate("({x:0,y:0,width:document.documentElement.clientWidth,height:Math.min(8000,document.documentElement.scrollHeight),scale:1})") } : {}) });
      return Buffer.from(data, "base64");
    },
  };
}
