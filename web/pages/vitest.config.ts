import { defineConfig } from "vitest/config";

export default defineConfig({
  test: {
    include: ["test/**/*.test.ts"],
    testTimeout: 180_000,
    hookTimeout: 180_000,
    isolate: false, // all files in one process, with one browser
    fileParallelism: false,
  },
});
