// How the dashboard is built: into the package, so that neither a wheel nor `make run` needs node.
import { defineConfig } from "vite";

// `npm run dev` shows the dashboard of a service that runs here, started with `leased serve --ui act`.
const service = "http://127.0.0.1:8370";

export default defineConfig({
  base: "/ui/",
  publicDir: false,
  build: {
    outDir: "../src/leased/server/dashboard",
    emptyOutDir: true,
    target: ["chrome111", "firefox114", "safari16.4"],
    modulePreload: { polyfill: false },
    assetsInlineLimit: 0,
    reportCompressedSize: false,
  },
  server: {
    host: "127.0.0.1",
    proxy: { "/v1": { target: service, changeOrigin: true }, "/ui/session": { target: service, changeOrigin: true } },
  },
});
