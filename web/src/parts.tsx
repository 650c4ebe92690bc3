// Small parts that several views use: marks of states, the bar of time left, notices, dialogs, and asking again and again.

import type { ComponentChildren, JSX } from "preact";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";

import { Refused } from "./api";
import { everySecond, now, onSight } from "./clock";
import { holderBeside, machineOf } from "./machine";
import type { Row, Stage } from "./rows";
import { countdown, Maybe, plain, Text } from "./text";
import type { Status } from "./types";

// Each state has a word and a shape; colour only repeats them.
const WORDS: Record<Stage, string> = {
  held: "held",
  renewing: "renewing",
  risk: "at risk",
  maintenance: "maintenance",
  closed: "closed",
  released: "released",
  forced: "forced",
  expired: "expired",
  lost: "lost",
  gone: "ended",
};
const SHAPES: Record<Stage | "waiting", string> = {
  held: "M8 3a5 5 0 1 0 0 10A5 5 0 0 0 8 3z",
  renewing: "M8 2a6 6 0 0 1 5.2 3V3h1.5v5H9.8V6.5h2.4A4.5 4.5 0 1 0 12.3 10h1.6A6 6 0 1 1 8 2z",
  risk: "M8 1.5 15 14H1zM7.2 6v4h1.6V6zm0 5v1.6h1.6V11z",
  maintenance: "M11 1.5a3.5 3.5 0 0 0-3.3 4.7L2 11.9 4.1 14l5.7-5.7A3.5 3.5 0 0 0 14.3 4L12 6.3 9.7 4 12 1.7a3.5 3.5 0 0 0-1-.2z",
  closed: "M4 7V5a4 4 0 0 1 8 0v2h1v7H3V7zm1.6 0h4.8V5a2.4 2.4 0 0 0-4.8 0z",
  released: "M8 3a5 5 0 1 0 0 10A5 5 0 0 0 8 3zm0 1.6a3.4 3.4 0 1 1 0 6.8 3.4 3.4 0 0 1 0-6.8z",
  forced: "M9.5 1 3 9h4l-1 6 7-8.5H8.5z",
  expired: "M3.5 2.4 8 6.9l4.5-4.5 1.1 1.1L9.1 8l4.5 4.5-1.1 1.1L8 9.1l-4.5 4.5-1.1-1.1L6.9 8 2.4 3.5z",
  lost: "M3.5 2.4 8 6.9l4.5-4.5 1.1 1.1L9.1 8l4.5 4.5-1.1 1.1L8 9.1l-4.5 4.5-1.1-1.1L6.9 8 2.4 3.5z",
  gone: "M3 7.2h10v1.6H3z",
  waiting: "M4 1.5h8V3c0 2-1.5 3.5-3 5 1.5 1.5 3 3 3 5v1.5H4V13c0-2 1.5-3.5 3-5-1.5-1.5-3-3-3-5z",
};

export const wordOf = (stage: Stage): string => WORDS[stage];

export function Icon({ shape }: { shape: keyof typeof SHAPES }): JSX.Element {
  return (
    <svg class="icon" viewBox="0 0 16 16" aria-hidden="true">
      <path d={SHAPES[shape]} fill-rule="evenodd" />
    </svg>
  );
}

export function StageMark({ stage }: { stage: Stage }): JSX.Element {
  return (
    <span class={`stage stage-${stage}`}>
      <Icon shape={stage} />
      {WORDS[stage]}
    </span>
  );
}

export function Waiting({ number }: { number: number }): JSX.Element {
  if (!number) return <span class="none">–</span>;
  return (
    <span class="waiting">
      <Icon shape="waiting" />
      {number.toLocaleString("en")}
      <span class="aside"> waiting</span>
    </span>
  );
}

/** Who holds a key, and below that the machine: both in the room of one line of the table. */
export function Holder({ heldBy, metadata }: { heldBy: string | null; metadata: Record<string, unknown> }): JSX.Element {
  const machine = machineOf(metadata);
  if (!machine) return <Maybe value={heldBy} />;
  const whole = [heldBy, machine.place, machine.program].filter(Boolean).join(" ");
  return (
    <span class="holder" title={plain(whole)}>
      <Maybe value={holderBeside(heldBy, machine)} />
      <span class="machine">
        <Text value={machine.place} />
      </span>
    </span>
  );
}

/** The machine in full, and a dash where nobody said which it is. */
export function MachineFact({ metadata }: { metadata: Record<string, unknown> }): JSX.Element {
  const machine = machineOf(metadata);
  return (
    <>
      <Maybe value={machine?.place} mono />
      {machine?.program ? (
        <span class="aside">
          {" "}
          <Text value={machine.program} />
        </span>
      ) : null}
    </>
  );
}

/** Who has the key, in whose name and where: pairs of a list of facts. */
export function HolderFacts({ status }: { status: Status }): JSX.Element {
  return (
    <>
      <dt>Held by</dt>
      <dd>
        <Maybe value={status.heldBy} />
      </dd>
      <dt>Owner</dt>
      <dd>
        <Maybe value={status.owner} />
      </dd>
      <dt>Machine</dt>
      <dd>
        <MachineFact metadata={status.metadata} />
      </dd>
    </>
  );
}

/** The time left of a row, as a bar that runs down and in words. It draws itself each second; nothing else is drawn. */
export function TimeLeft({ row }: { row: Row }): JSX.Element {
  const bar = useRef<HTMLSpanElement>(null);
  const words = useRef<HTMLSpanElement>(null);
  useLayoutEffect(() => {
    const draw = (at: number): void => {
      const left = row.end || row.ends === null ? 0 : Math.max(0, row.ends - at);
      if (bar.current) bar.current.style.transform = `scaleX(${row.full ? Math.min(1, left / row.full).toFixed(4) : 0})`;
      const text = row.end ? "–" : row.ends === null ? "?" : countdown(left);
      if (words.current && words.current.textContent !== text) words.current.textContent = text;
    };
    draw(now());
    return everySecond(draw);
  }, [row, row.ends, row.full, row.end]);
  return (
    <span class="left">
      <span class="bar" aria-hidden="true">
        <span ref={bar} />
      </span>
      <span class="left-words" ref={words} />
    </span>
  );
}

/** For how long, counted on each second without drawing anything else. */
export function Age({ since, stopped }: { since: number | null; stopped?: number | undefined }): JSX.Element {
  const words = useRef<HTMLSpanElement>(null);
  useLayoutEffect(() => {
    const draw = (at: number): void => {
      const text = since === null ? "–" : countdown((stopped ?? at) - since);
      if (words.current && words.current.textContent !== text) words.current.textContent = text;
    };
    draw(now());
    return everySecond(draw);
  }, [since, stopped]);
  return <span class="age" ref={words} />;
}

/** What the service refused, in its own words. */
export function Refusal({ refused }: { refused: Refused }): JSX.Element {
  return (
    <div class="notice bad" role="alert">
      <p>
        <bdi>{refused.message}</bdi>
        {refused.status ? <span class="aside"> ({refused.code || refused.status})</span> : null}
      </p>
      {refused.hint ? (
        <p class="hint">
          hint: <bdi>{refused.hint}</bdi>
        </p>
      ) : null}
      {refused.retryAfter !== null ? <p class="hint">The service asks for {refused.retryAfter} s of patience.</p> : null}
      {refused.unknown ? <p class="hint">Whether it was done is not known. Look at the key before you do it again.</p> : null}
    </div>
  );
}

/** A dialog that has the keyboard while it is open; Escape closes it. */
export function Dialog(props: { title: string; close: () => void; children: ComponentChildren }): JSX.Element {
  const element = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    const before = document.activeElement;
    element.current?.showModal();
    return () => {
      if (before instanceof HTMLElement && before.isConnected) before.focus();
    };
  }, []);
  return (
    <dialog ref={element} aria-labelledby="dialog-title" onClose={props.close}>
      <h2 id="dialog-title">{props.title}</h2>
      {props.children}
    </dialog>
  );
}

export interface Polled<T> {
  value: T | null;
  refused: Refused | null;
  /** Ask soon, for something has happened; however much does, not all the time. */
  again: () => void;
  /** Ask now, for whoever looks has done something. */
  atOnce: () => void;
}

/** Seconds between two questions that events make, at the least, or there would be one for each event of a busy key. */
const LEAST = 3;

/** Ask at once, and every so many seconds while the page is seen; a question that changes starts anew. */
export function usePolled<T>(ask: () => Promise<T>, seconds: number, question: readonly unknown[]): Polled<T> {
  const [state, setState] = useState<{ value: T | null; refused: Refused | null }>({ value: null, refused: null });
  const again = useRef<() => void>(() => undefined);
  const atOnce = useRef<() => void>(() => undefined);
  useEffect(() => {
    let over = false;
    let busy = false;
    let due = 0;
    let next = 0; // before which it is not asked again, however much happens
    let wanted = false;
    setState({ value: null, refused: null });
    const run = (): void => {
      if (busy || over) return;
      busy = true;
      next = now() + 1000 * Math.min(seconds || LEAST, LEAST);
      ask()
        .then((value) => over || setState({ value, refused: null }))
        .catch((error: unknown) => {
          if (over || !(error instanceof Refused)) return;
          setState((was) => ({ value: was.value, refused: error }));
          due = next = now() + 1000 * Math.max(seconds, error.retryAfter ?? 0);
        })
        .finally(() => (busy = false));
    };
    const soon = (): void => {
      if (now() >= next) run();
      else wanted = true;
    };
    again.current = soon;
    atOnce.current = () => {
      next = 0;
      if (busy) wanted = true; // what is being answered may be of before
      else run();
    };
    run();
    due = now() + 1000 * seconds;
    const stopTicks = everySecond((at) => {
      if ((seconds && at >= due) || (wanted && at >= next)) {
        wanted = false;
        due = at + 1000 * seconds;
        run();
      }
    });
    const stopSight = onSight((inSight) => inSight && soon());
    return () => {
      over = true;
      stopTicks();
      stopSight();
    };
  }, question);
  return { ...state, again: () => again.current(), atOnce: () => atOnce.current() };
}
