/** Every page has an `index.html` at its address, and ends up in the Python package beside the server. */

import { defineConfig } from "vite";

const PAGES = {
  participant: "c/index.html",
  dashboard: "index.html",
  map: "m/index.html",
  certificate: "certificate/index.html",
};

export default defineConfig({
  base: "./", // addresses stay right behind a proxy that adds a prefix
  resolve: { alias: { "@geoveil/client": new URL("../sdk/src/index.ts", import.meta.url).pathname } },
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
