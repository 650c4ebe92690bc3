// What is known of the keys, from pages of the list and from events, whichever came later. It asks nobody.

import type { LockEvent, Status } from "./types";

/** How long a hold that has ended still shows. */
export const AFTERGLOW = 10_000;

/** By how much a lease must have grown to have been renewed: the store's clock may be read anew for each answer. */
const GROWN = 250;

export type End = "released" | "forced" | "expired" | "lost" | "gone";
export type Stage = "held" | "renewing" | "risk" | "maintenance" | "closed" | End;

/** One key. Instants are of this machine's own clock; `seen` is when the service last said so, 0 if only an event did. */
export interface Row {
  readonly key: string;
  state: "held" | "closed";
  owner: string | null;
  heldBy: string | null;
  fencingToken: number | null;
  metadata: Record<string, unknown>;
  waiters: number;
  since: number | null;
  ends: number | null;
  /** What was left when it was last told, and the most that ever was: about the ttl. */
  left: number | null;
  full: number;
  renewals: number;
  /** When it ends on the store's clock, if a look has told that: answers that come late shift no renewal into it. */
  endsAt: number | null;
  seen: number;
  heard: number;
  end: End | null;
  endedAt: number;
}

export interface Range {
  after: string;
  /** The last key of it; null: to the end. */
  last: string | null;
  prefix: string;
}

export class Rows {
  readonly byKey = new Map<string, Row>();
  /** All keys in the order of their bytes. */
  readonly keys: string[] = [];
  private ending: Row[] = [];

  /** The row of a key as the service tells it, made anew where the hold is another one. */
  told(status: Status, at: number): void {
    if (status.state === "free") return;
    const known = this.byKey.get(status.key);
    const token = status.fencingToken;
    if (known && token !== null && known.fencingToken !== null && known.fencingToken > token) return;
    const same = known && !known.end && known.fencingToken === token && known.state === status.state;
    if (known?.end && known.fencingToken === token && status.state === "held" && known.endedAt > at - AFTERGLOW / 5) return;
    const row = same ? known : this.put(status.key, at);
    const left = status.state === "closed" ? status.freeInMs : status.expiresInMs;
    const endsAt = status.expiresAt === null ? null : Date.parse(status.expiresAt);
    if (same && endsAt !== null && row.endsAt !== null && endsAt > row.endsAt + GROWN) row.renewals += 1;
    row.endsAt = endsAt;
    row.state = status.state;
    row.owner = status.owner;
    row.heldBy = status.heldBy;
    row.fencingToken = token;
    row.metadata = status.metadata;
    row.waiters = status.waiters ?? row.waiters;
    row.since = sinceOf(status, left, at);
    row.left = left;
    row.ends = left === null ? null : at + left;
    row.full = Math.max(row.full, fullOf(row.since, left ?? 0, at));
    row.seen = at;
  }

  /** A page of the list that was asked for at `asked`: what it does not have in its range, is held no longer. */
  page(statuses: readonly Status[], range: Range, asked: number, at: number): void {
    const listed = new Set<string>();
    for (const status of statuses) {
      listed.add(status.key);
      this.told(status, at);
    }
    for (let place = range.after ? after(this.keys, range.after) : 0; place < this.keys.length; place += 1) {
      const key = this.keys[place] as string;
      if (range.last !== null && compare(key, range.last) > 0) break;
      const row = this.byKey.get(key) as Row;
      if (listed.has(key) || row.end || Math.max(row.seen, row.heard) > asked || !key.startsWith(range.prefix)) continue;
      if (row.state === "closed") this.end(row, "gone", at - AFTERGLOW);
      else this.end(row, row.ends !== null && row.ends < at + 1000 ? "expired" : "gone", at);
    }
  }

  /** What a look at one key found. */
  looked(key: string, status: Status, at: number): void {
    const row = this.byKey.get(key);
    if (status.state !== "free") this.told(status, at);
    else if (row && !row.end) this.end(row, row.ends !== null && row.ends < at + 1000 ? "expired" : "gone", at);
  }

  heard(event: LockEvent, at: number): void {
    if (event.key === undefined) return;
    const row = this.byKey.get(event.key);
    const token = event.fencingToken ?? null;
    if (event.event === "acquired") {
      this.granted(event, token, row, at);
    } else if (row) {
      const same = token === null || row.fencingToken === null || row.fencingToken === token;
      if (event.waiters !== undefined) row.waiters = event.waiters;
      if (!same || row.end) return;
      if (event.event === "renewed") this.renewed(row, event, at);
      else if (event.event === "released") this.end(row, "released", at);
      else if (event.event === "force_released") this.end(row, "forced", at);
      else if (event.event === "expired" || (event.event === "lost" && token !== null)) this.end(row, "lost", at);
      else if (event.event === "lost") row.seen = 0;
    }
  }

  private granted(event: LockEvent, token: number | null, row: Row | undefined, at: number): void {
    const known = row?.fencingToken ?? null;
    if (row && token !== null && known !== null && (known > token || (known === token && !row.end))) return;
    const made = this.put(event.key as string, at);
    made.owner = event.owner ?? null;
    made.heldBy = event.heldBy ?? event.by ?? null;
    made.fencingToken = token;
    made.waiters = event.waiters ?? Math.max(0, (row?.waiters ?? 0) - 1);
    made.since = at;
    made.heard = at;
    this.lasts(made, event.leftMs ?? event.ttlMs ?? null, at);
  }

  private renewed(row: Row, event: LockEvent, at: number): void {
    row.renewals += 1;
    row.endsAt = null;
    row.heard = at;
    this.lasts(row, event.leftMs ?? event.ttlMs ?? (row.full || null), at);
  }

  private lasts(row: Row, left: number | null, at: number): void {
    if (left === null) return;
    row.left = left;
    row.ends = at + left;
    row.full = Math.max(row.full, left);
  }

  end(row: Row, end: End, at: number): void {
    row.end = end;
    row.endedAt = at;
    row.heard = at;
    this.ending.push(row);
  }

  /** Let go of what ended a while ago; whether anything went. */
  sweep(at: number): boolean {
    const going = this.ending.filter((row) => at - row.endedAt >= AFTERGLOW);
    if (!going.length) return false;
    this.ending = this.ending.filter((row) => at - row.endedAt < AFTERGLOW);
    for (const row of going) if (this.byKey.get(row.key) === row && row.end) this.drop(row.key);
    return true;
  }

  clear(): void {
    this.byKey.clear();
    this.keys.length = 0;
    this.ending = [];
  }

  private put(key: string, at: number): Row {
    const before = this.byKey.get(key);
    if (before?.end) this.ending = this.ending.filter((row) => row !== before);
    if (!before) this.keys.splice(after(this.keys, key), 0, key);
    const row: Row = {
      key,
      state: "held",
      owner: null,
      heldBy: null,
      fencingToken: null,
      metadata: {},
      waiters: 0,
      since: null,
      ends: null,
      left: null,
      full: 0,
      renewals: 0,
      endsAt: null,
      seen: 0,
      heard: at,
      end: null,
      endedAt: 0,
    };
    this.byKey.set(key, row);
    return row;
  }

  private drop(key: string): void {
    this.byKey.delete(key);
    const place = after(this.keys, key) - 1;
    if (this.keys[place] === key) this.keys.splice(place, 1);
  }
}

/**
 * What to call the state of a row. A hold is at risk where the service itself said that less than a third of it is left:
 * whoever renews had done that by then. What runs out between two looks is not called so before the next look.
 */
export function stageOf(row: Row): Stage {
  if (row.end) return row.end;
  if (row.state === "closed") return "closed";
  if (row.metadata.maintenance === true) return "maintenance";
  if (row.left !== null && row.full > 0 && row.left < row.full / 3) return "risk";
  return row.renewals > 0 ? "renewing" : "held";
}

/**
 * The ttl as far as it can be told from one look. Whoever renews does so when a third of the ttl has passed; in a hold that
 * is younger than that, what has passed and what is left make up the ttl.
 */
function fullOf(since: number | null, left: number, at: number): number {
  const age = since === null ? left : at - since;
  return age < left / 2 ? age + left : left;
}

function sinceOf(status: Status, left: number | null, at: number): number | null {
  const until = status.state === "closed" ? status.freeAt : status.expiresAt;
  if (status.acquiredAt === null || until === null || left === null) return null;
  // Both instants are of the store's clock; this machine's takes no part in it.
  const age = Date.parse(until) - left - Date.parse(status.acquiredAt);
  return Number.isFinite(age) ? at - Math.max(0, age) : null;
}

/** The order of two keys by their bytes in UTF-8, which is that of the service. */
export function compare(one: string, other: string): number {
  const length = Math.min(one.length, other.length);
  for (let place = 0; place < length; place += 1) {
    const a = one.charCodeAt(place);
    const b = other.charCodeAt(place);
    if (a !== b) {
      // In UTF-16 the halves of pairs stand below U+E000, but what they stand for is above U+FFFF.
      const high = (unit: number): number => (unit >= 0xd800 && unit < 0xe000 ? unit + 0x10000 : unit);
      return high(a) - high(b);
    }
  }
  return one.length - other.length;
}

/** The place of the first key that comes after this one. */
export function after(keys: readonly string[], key: string): number {
  let low = 0;
  let high = keys.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (compare(keys[middle] as string, key) <= 0) low = middle + 1;
    else high = middle;
  }
  return low;
}
