// The one timer of the page. It stands still while nobody looks: hidden tabs cost the service nothing.

type Tick = (now: number) => void;

const ticks = new Set<Tick>();
const lookers = new Set<(seen: boolean) => void>();
let timer: number | null = null;

/** Milliseconds of this machine's own clock, which nobody sets. */
export const now = (): number => performance.now();

/** Be called each second while the page is seen. Returns how to stop that. */
export function everySecond(tick: Tick): () => void {
  ticks.add(tick);
  start();
  return () => {
    ticks.delete(tick);
  };
}

/** Be told when the page comes into sight or goes out of it. */
export function onSight(looker: (seen: boolean) => void): () => void {
  lookers.add(looker);
  return () => {
    lookers.delete(looker);
  };
}

export const seen = (): boolean => document.visibilityState !== "hidden";

function start(): void {
  if (timer === null && seen()) {
    timer = window.setInterval(() => {
      const at = now();
      for (const tick of ticks) tick(at);
    }, 1000);
  }
}

document.addEventListener("visibilitychange", () => {
  if (seen()) {
    start();
  } else if (timer !== null) {
    clearInterval(timer);
    timer = null;
  }
  for (const looker of lookers) looker(seen());
});
