// Shows text of others as text: nothing of it is markup, turns the line around, or hides.

import type { JSX } from "preact";

// Control and format characters, what is drawn as nothing, and spaces that look like another.
const ODD = /[\p{Cc}\p{Cf}\p{Cs}\p{Co}\p{Cn}\p{Zl}\p{Zp}\p{Default_Ignorable_Code_Point}\u2800]|[^\S ]|^ | $/gu;

export function codeOf(character: string): string {
  return `U+${(character.codePointAt(0) ?? 0).toString(16).toUpperCase().padStart(4, "0")}`;
}

/** The same text with all that cannot be seen written out; for labels and titles. */
export function plain(text: string): string {
  return text.replace(ODD, (character) => `⟨${codeOf(character)}⟩`);
}

/** The same for a text of several lines, which may be indented. */
export function lines(text: string): string {
  return text
    .split("\n")
    .map((line) => plain(`|${line}|`).slice(1, -1))
    .join("\n");
}

/** The text, apart from its surroundings in direction, with what cannot be seen marked as such. */
export function Text({ value, mono = false }: { value: string; mono?: boolean }): JSX.Element {
  const parts: (string | JSX.Element)[] = [];
  let end = 0;
  for (const found of value.matchAll(ODD)) {
    if (found.index > end) parts.push(value.slice(end, found.index));
    parts.push(<span class="odd">{codeOf(found[0])}</span>);
    end = found.index + found[0].length;
  }
  if (end < value.length) parts.push(value.slice(end));
  return <bdi class={mono ? "text mono" : "text"}>{parts}</bdi>;
}

/** The text, or a dash where there is none. */
export function Maybe({ value, mono = false }: { value: string | null | undefined; mono?: boolean }): JSX.Element {
  return value ? <Text value={value} mono={mono} /> : <span class="none">–</span>;
}

const SECOND = 1000;
const MINUTE = 60 * SECOND;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;

/** A span of milliseconds in the two largest units that say something. */
export function span(milliseconds: number): string {
  const ms = Math.max(0, milliseconds);
  if (ms < SECOND) return `${Math.round(ms)} ms`;
  if (ms < 10 * SECOND) return `${(ms / SECOND).toFixed(1)} s`;
  if (ms < MINUTE) return `${Math.floor(ms / SECOND)} s`;
  return large(ms).replace(/ 00 \w$/, "");
}

/** The same in whole seconds, for what changes each second. */
export function countdown(milliseconds: number): string {
  const ms = Math.max(0, milliseconds);
  return ms < MINUTE ? `${Math.floor(ms / SECOND)} s` : large(ms);
}

function large(ms: number): string {
  if (ms < HOUR) return two(ms, MINUTE, "m", SECOND, "s");
  if (ms < DAY) return two(ms, HOUR, "h", MINUTE, "m");
  return two(ms, DAY, "d", HOUR, "h");
}

function two(ms: number, large: number, name: string, small: number, other: string): string {
  return `${Math.floor(ms / large)} ${name} ${String(Math.floor((ms % large) / small)).padStart(2, "0")} ${other}`;
}

/** An instant on the clock of whoever looks; the day only where it is another one. */
export function clockTime(instant: string | number, today: Date = new Date()): string {
  const at = new Date(instant);
  if (Number.isNaN(at.getTime())) return String(instant);
  const two = (number: number): string => String(number).padStart(2, "0");
  const time = `${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;
  const day = `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())}`;
  return at.toDateString() === today.toDateString() ? time : `${day} ${time}`;
}

export function count(number: number, one: string, many: string = `${one}s`): string {
  return `${number.toLocaleString("en")} ${number === 1 ? one : many}`;
}
