// Which rows are shown and in which order. It changes no row.

import { isOn } from "./machine";
import type { Row, Rows, Stage } from "./rows";
import { compare, stageOf } from "./rows";

export type Group = "all" | "held" | "renewing" | "risk" | "waiting" | "maintenance" | "closed" | "over";
export type Column = "stage" | "key" | "owner" | "heldBy" | "since" | "left" | "waiters" | "fencingToken";

export interface Choice {
  prefix: string;
  /** Part of the owner, of the holder or of its machine, in whatever case. */
  who: string;
  group: Group;
  column: Column;
  down: boolean;
}

export interface Chosen {
  rows: Row[];
  counts: Record<Group, number>;
}

const URGENCY: Record<Stage, number> = {
  risk: 0,
  lost: 1,
  expired: 2,
  forced: 3,
  maintenance: 4,
  closed: 5,
  held: 6,
  renewing: 7,
  released: 8,
  gone: 9,
};

export function choose(rows: Rows, choice: Choice): Chosen {
  const counts: Record<Group, number> = { all: 0, held: 0, renewing: 0, risk: 0, waiting: 0, maintenance: 0, closed: 0, over: 0 };
  const who = choice.who.toLowerCase();
  const found: Row[] = [];
  for (const key of rows.keys) {
    if (choice.prefix && !key.startsWith(choice.prefix)) continue;
    const row = rows.byKey.get(key) as Row;
    if (who && !isOf(row, who)) continue;
    const group = groupOf(row);
    counts.all += 1;
    counts[group] += 1;
    if (row.waiters && !row.end) counts.waiting += 1;
    const fits = choice.group === "all" || choice.group === group || (choice.group === "waiting" && row.waiters > 0 && !row.end);
    if (fits) found.push(row);
  }
  if (choice.column !== "key") found.sort(orders[choice.column]); // equal ones stay in the order of their keys
  if (choice.down) found.reverse();
  return { rows: found, counts };
}

function isOf(row: Row, who: string): boolean {
  return !!row.owner?.toLowerCase().includes(who) || !!row.heldBy?.toLowerCase().includes(who) || isOn(row.metadata, who);
}

function groupOf(row: Row): Group {
  const stage = stageOf(row);
  return row.end ? "over" : (stage as Group);
}

const text = (one: string | null, other: string | null): number =>
  one === other ? 0 : one === null ? 1 : other === null ? -1 : compare(one, other);
const number = (one: number | null, other: number | null): number =>
  one === other ? 0 : one === null ? 1 : other === null ? -1 : one - other;

const orders: Record<Column, (one: Row, other: Row) => number> = {
  stage: (one, other) => URGENCY[stageOf(one)] - URGENCY[stageOf(other)],
  key: (one, other) => compare(one.key, other.key),
  owner: (one, other) => text(one.owner, other.owner),
  heldBy: (one, other) => text(one.heldBy, other.heldBy),
  since: (one, other) => number(one.since, other.since),
  left: (one, other) => number(one.ends, other.ends),
  waiters: (one, other) => other.waiters - one.waiters,
  fencingToken: (one, other) => number(one.fencingToken, other.fencingToken),
};
