// Keeps the rows true: reads the list page by page, hears events, and looks again at what is on the screen.

import { get, onRefusal, Refused } from "./api";
import { everySecond, now, onSight, seen } from "./clock";
import { after, type Row, Rows } from "./rows";
import type { LockEvent, Status } from "./types";

/** Keys that are kept at most; beyond them a prefix must be named. */
export const MOST_KEYS = 20_000;

const FIRST_PAGE = 100;
const PAGE = 1000;
/** What is on the screen is looked at again when it was last told so long ago. */
const FRESH = 2500;
/** Pauses between two pages of the walk through everything, which finds what no event told of. */
const STROLL = 10_000;
/** The least between two walks that begin because events were missed. */
const CATCH_UP = 10_000;
const REDRAW = 200;
const MOST_DENIALS = 200;
const NAMES = ["acquired", "contended", "renewed", "lost", "expired", "released", "force_released", "denied", "missed"];

export interface Denial {
  at: number;
  by: string;
  action: string;
  key: string;
}

export type Stream = "opening" | "open" | "broken" | "refused";

/** Whether a row on the screen is to be looked at again: in time, and at once when it may have come to be at risk or over. */
function isDue(row: Row, at: number): boolean {
  if (row.end) return false;
  const risky = row.ends === null ? at : row.ends - row.full / 3;
  return at - row.seen > FRESH || (row.seen < risky && at >= risky) || (row.ends !== null && at > row.ends);
}

export class Live {
  readonly rows = new Rows();
  readonly denials: Denial[] = [];
  stream: Stream = "opening";
  /** Whether all pages were read once. */
  complete = false;
  truncated = false;
  /** Only keys with this prefix are read, where there are too many. */
  scope = "";
  trouble: Refused | null = null;
  private watchers = new Set<() => void>();
  private ears = new Set<(event: LockEvent) => void>();
  private visible: readonly string[] = [];
  private source: EventSource | null = null;
  private cursor = "";
  private walking = false;
  private turn = 0;
  private asking = false;
  private quietUntil = 0;
  private strolled = 0;
  private behind = false;
  private caughtUp = -CATCH_UP;
  private drawn = 0;
  private drawing = 0;
  private stops: (() => void)[] = [];

  start(): void {
    this.stops = [
      everySecond((at) => this.tick(at)),
      onSight((inSight) => (inSight ? this.wake() : this.sleep())),
      onRefusal((refused) => this.refused(refused)),
    ];
    if (seen()) this.wake();
  }

  stop(): void {
    for (const stop of this.stops) stop();
    this.watchers.clear();
    this.sleep();
    cancelAnimationFrame(this.drawing);
  }

  /** Be told, a few times a second at most, that something has changed. */
  watch(watcher: () => void): () => void {
    this.watchers.add(watcher);
    return () => {
      this.watchers.delete(watcher);
    };
  }

  /** Hear each event. */
  hear(ear: (event: LockEvent) => void): () => void {
    this.ears.add(ear);
    return () => {
      this.ears.delete(ear);
    };
  }

  /** The keys on the screen, in any order. */
  look(keys: readonly string[]): void {
    this.visible = keys;
  }

  /** Read what begins like this, if it cannot be had of what is here. */
  narrow(prefix: string): void {
    const enough = !this.truncated && this.scope === "";
    if (enough || prefix === this.scope) return;
    this.scope = prefix;
    this.rows.clear();
    this.truncated = false;
    this.again();
  }

  /** Ask of one key at once, as after an action. */
  async refresh(key: string): Promise<void> {
    const status = await get<Status>("/v1/locks/status", { key });
    this.rows.looked(key, status, now());
    this.changed();
  }

  private wake(): void {
    this.listen();
    this.again();
  }

  private sleep(): void {
    this.source?.close();
    this.source = null;
    this.stream = "opening";
    this.changed();
  }

  private again(): void {
    this.turn += 1;
    this.cursor = "";
    this.complete = false;
    void this.walk();
  }

  private listen(): void {
    this.source?.close();
    const source = new EventSource("/v1/events");
    this.source = source;
    let broken = false;
    source.onopen = () => {
      this.stream = "open";
      if (broken) this.again(); // nobody told what happened meanwhile
      broken = false;
      this.changed();
    };
    source.onerror = () => {
      broken = true;
      this.stream = source.readyState === EventSource.CLOSED ? "refused" : "broken";
      this.changed();
    };
    for (const name of NAMES) source.addEventListener(name, (message) => this.take(message as MessageEvent<string>));
  }

  private take(message: MessageEvent<string>): void {
    const event = JSON.parse(message.data) as LockEvent;
    if (event.event === "missed") {
      this.behind = true;
      return;
    }
    if (event.event === "denied") this.denied(event);
    else if (event.key?.startsWith(this.scope)) {
      const full = this.rows.byKey.size >= MOST_KEYS && !this.rows.byKey.has(event.key);
      if (!full) this.rows.heard(event, now());
    }
    for (const ear of this.ears) ear(event);
    this.changed();
  }

  private denied(event: LockEvent): void {
    this.denials.unshift({ at: Date.now(), by: event.by ?? "", action: event.action ?? "", key: event.key ?? "" });
    this.denials.length = Math.min(this.denials.length, MOST_DENIALS);
  }

  private refused(refused: Refused): void {
    if (refused.status === 429 || refused.status === 503) {
      this.quietUntil = now() + 1000 * Math.min(300, refused.retryAfter ?? 5);
      this.trouble = refused;
      this.changed();
    }
  }

  private tick(at: number): void {
    if (this.rows.sweep(at)) this.changed();
    if (this.stream === "refused" && at > this.quietUntil && seen()) {
      this.quietUntil = at + 5000;
      this.listen();
    }
    if (this.asking || this.walking || at < this.quietUntil) return;
    const stale = this.stale(at);
    if (this.behind && at - this.caughtUp > CATCH_UP) {
      this.behind = false;
      this.caughtUp = at;
      this.again();
    } else if (!this.complete) void this.walk();
    else if (stale) void this.page(stale.after, stale.limit).catch(() => undefined);
    else if (at - this.strolled > STROLL) {
      this.strolled = at;
      void this.stroll().catch(() => undefined);
    }
  }

  /** The page that has the first of the visible keys that are due, and as many of the others as lie near. */
  private stale(at: number): { after: string; limit: number } | null {
    const keys = this.rows.keys;
    const due = this.visible.flatMap((key) => {
      const row = this.rows.byKey.get(key);
      return row && isDue(row, at) ? [after(keys, key) - 1] : [];
    });
    if (!due.length) return null;
    due.sort((one, other) => one - other);
    const first = due[0] as number;
    const last = due.findLast((place) => place - first < PAGE - 20) as number;
    return { after: keys[first - 1] ?? "", limit: Math.min(PAGE, last - first + 20) };
  }

  /** Read everything from where it stopped, as fast as it is answered. */
  private async walk(): Promise<void> {
    if (this.walking) return;
    this.walking = true;
    try {
      while (!this.complete && seen() && now() >= this.quietUntil) {
        const turn = this.turn;
        const from = this.cursor;
        const limit = from ? PAGE : FIRST_PAGE;
        const found = await this.page(from, limit);
        if (this.turn !== turn) continue; // it was begun again meanwhile
        this.cursor = found.at(-1)?.key ?? from;
        this.truncated = this.rows.byKey.size >= MOST_KEYS && found.length >= limit;
        this.complete = found.length < limit || this.truncated;
        this.strolled = now();
        this.trouble = null;
      }
    } catch (error) {
      this.quietUntil = Math.max(this.quietUntil, now() + 3000);
      this.trouble = error instanceof Refused ? error : null;
    } finally {
      this.walking = false;
      if (this.complete) this.cursor = "";
      this.changed();
    }
  }

  private async stroll(): Promise<void> {
    const found = await this.page(this.cursor, PAGE);
    this.cursor = found.length < PAGE ? "" : (found.at(-1)?.key ?? "");
  }

  private async page(from: string, limit: number): Promise<Status[]> {
    const asked = now();
    const prefix = this.scope;
    this.asking = true;
    try {
      const { locks } = await get<{ locks: Status[] }>("/v1/locks", { prefix, after: from, limit });
      if (prefix !== this.scope) return [];
      const last = locks.length < limit ? null : (locks.at(-1)?.key ?? null);
      this.rows.page(locks, { after: from, last, prefix }, asked, now());
      if (!performance.getEntriesByName("leased:first-page").length) performance.mark("leased:first-page");
      this.trouble = null;
      this.changed();
      return locks;
    } finally {
      this.asking = false;
    }
  }

  private draw(): void {
    this.drawn = now();
    for (const watcher of this.watchers) watcher();
  }

  private changed(): void {
    if (this.drawing) return;
    if (!this.drawn && this.rows.keys.length) return this.draw(); // the first rows wait for nothing
    const due = this.drawn + REDRAW - now();
    const draw = (): void => {
      this.drawing = requestAnimationFrame(() => {
        this.drawing = 0;
        this.draw();
      });
    };
    if (due <= 0) draw();
    else {
      this.drawing = -1;
      window.setTimeout(draw, due);
    }
  }
}
