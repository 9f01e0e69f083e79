/** Every page has an `index.html` at its address, and ends up in the Python package beside the server. */

import { fileURLToPath } from "node:url";
import { defineConfig, type Plugin } from "vite";

const PAGES = {
  participant: "c/index.html",
  dashboard: "index.html",
  map: "m/index.html",
  certificate: "certificate/index.html",
};

/** The head that all pages share, around the style that each names; relative addresses, as in the page itself. */
function head(style: string, up: string): string {
  const styles = ["design/tokens.css", "design/base.css", style].map(
    (each) => `<link rel="stylesheet" href="${up}src/${each}" />`,
  );
  return [
    "<head>",
    '<meta charset="utf-8" />',
    '<meta name="viewport" content="width=device-width, initial-scale=1" />',
    '<meta name="color-scheme" content="light dark" />',
    "<title>Geoveil</title>",
    `<link rel="icon" type="image/svg+xml" href="${up}src/design/icon.svg" />`,
    ...styles,
    "</head>",
  ].join("\n    ");
}

const heads: Plugin = {
  name: "heads",
  transformIndexHtml: {
    order: "pre",
    handler: (html, { path }) =>
      html.replace(/<head data-style="([^"]*)"><\/head>/, (_, style: string) =>
        head(style, "../".repeat(path.split("/").length - 2)),
      ),
  },
};

export default defineConfig({
  plugins: [heads],
  base: "./", // addresses stay right behind a proxy that adds a prefix
  resolve: { alias: { "@geoveil/client": fileURLToPath(new URL("../sdk/src/index.ts", import.meta.url)) } },
  worker: { format: "es" },
  build: {
    outDir: process.env["GEOVEIL_PAGES"] ?? "../../src/geoveil/server/page_files",
    emptyOutDir: true,
    target: "es2022",
    assetsInlineLimit: 0, // the policy allows no data: addresses
    modulePreload: { polyfill: false },
    reportCompressedSize: false,
    rolldownOptions: { input: PAGES },
  },
});
