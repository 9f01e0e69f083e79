/** The package as one file, as a page would load it. */

import { build } from "vite";

export async function bundled(entry: string): Promise<string> {
  const input = new URL(entry, import.meta.url).pathname;
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
