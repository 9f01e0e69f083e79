/** The package as one file, as a page would load it, and the browser that loads it. */

import { fileURLToPath } from "node:url";
import { type Browser, chromium } from "playwright-core";
import { build } from "vite";
import { started } from "./browser.ts";

let running: Promise<Browser> | undefined;
let made: Promise<string> | undefined;

/** The one browser of all files, which run one after another in one process and end it with them. */
export function launch(): Promise<Browser> {
  return (running ??= started(chromium));
}

/** What runs inside it, bundled once. */
export function inBrowser(): Promise<string> {
  return (made ??= bundled("./in_browser.ts"));
}

export async function bundled(entry: string): Promise<string> {
  const input = fileURLToPath(new URL(entry, import.meta.url));
  const made = await build({
    configFile: false,
    logLevel: "silent",
    build: {
      write: false,
      modulePreload: false,
      rolldownOptions: { input, preserveEntrySignatures: "strict", output: { format: "es", minify: true } },
    },
  });
  const outputs = Array.isArray(made) ? made : [made];
  return outputs
    .flatMap((output) => ("output" in output ? output.output : []))
    .map((part) => ("code" in part ? part.code : ""))
    .join("");
}
