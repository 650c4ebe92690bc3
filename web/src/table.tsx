// The table of keys: only the rows on the screen are drawn, however many there are.

import type { JSX, TargetedKeyboardEvent } from "preact";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";

import type { Choice, Column } from "./choice";
import { linkTo, open } from "./places";
import { Age, Holder, StageMark, TimeLeft, Waiting } from "./parts";
import type { Row } from "./rows";
import { stageOf } from "./rows";
import { Maybe, plain, Text } from "./text";

const BEYOND = 6;

export const COLUMNS: readonly [Column, string][] = [
  ["stage", "State"],
  ["key", "Key"],
  ["owner", "Owner"],
  ["heldBy", "Held by"],
  ["since", "Held for"],
  ["left", "Time left"],
  ["waiters", "Waiting"],
  ["fencingToken", "Fencing token"],
];

interface Props {
  rows: readonly Row[];
  choice: Choice;
  sort: (column: Column) => void;
  /** Is told the keys on the screen. */
  look: (keys: readonly string[]) => void;
}

export function Table({ rows, choice, sort, look }: Props): JSX.Element {
  const grid = useRef<HTMLDivElement>(null);
  const [view, setView] = useState({ top: 0, height: 600, row: 38 });
  const [active, setActive] = useState<string | null>(null);

  useLayoutEffect(() => {
    const element = grid.current as HTMLDivElement;
    const measure = (): void => {
      const row = Number.parseFloat(getComputedStyle(element).getPropertyValue("--row"));
      setView({ top: element.scrollTop, height: element.clientHeight, row });
    };
    measure();
    const observer = new ResizeObserver(measure);
    observer.observe(element);
    return () => observer.disconnect();
  }, []);

  const first = Math.max(0, Math.floor(view.top / view.row) - BEYOND);
  const shown = rows.slice(first, Math.ceil((view.top + view.height) / view.row) + BEYOND);
  useEffect(() => look(shown.map((row) => row.key)));
  useEffect(() => {
    if (rows.length && !performance.getEntriesByName("leased:first-view").length) performance.mark("leased:first-view");
  }, [rows.length > 0]);

  const place = active === null ? -1 : rows.findIndex((row) => row.key === active);
  const go = (to: number): void => {
    const row = rows[Math.max(0, Math.min(rows.length - 1, to))];
    if (!row) return;
    setActive(row.key);
    const element = grid.current as HTMLDivElement;
    const at = rows.indexOf(row) * view.row;
    const room = element.clientHeight - view.row - headHeight(element);
    if (at < element.scrollTop) element.scrollTop = at;
    else if (at > element.scrollTop + room) element.scrollTop = at - room;
  };
  const press = (event: TargetedKeyboardEvent<HTMLDivElement>): void => {
    if (event.target !== event.currentTarget || event.altKey || event.ctrlKey || event.metaKey) return;
    const page = Math.max(1, Math.floor(view.height / view.row) - 2);
    const moves: Record<string, number> = {
      ArrowDown: place + 1,
      ArrowUp: place < 0 ? rows.length - 1 : place - 1,
      PageDown: place + page,
      PageUp: place - page,
      Home: 0,
      End: rows.length - 1,
    };
    const to = moves[event.key];
    if (to !== undefined) go(to);
    else if (event.key === "Enter" && place >= 0) open(linkTo((rows[place] as Row).key));
    else return;
    event.preventDefault();
  };

  return (
    <div
      class="grid"
      role="grid"
      tabIndex={0}
      ref={grid}
      aria-label="Keys"
      aria-rowcount={rows.length + 1}
      aria-activedescendant={place >= first && place < first + shown.length ? `row-${place}` : undefined}
      onKeyDown={press}
      onScroll={(event) => setView({ ...view, top: event.currentTarget.scrollTop })}
    >
      <div role="rowgroup" class="grid-head">
        <div role="row" class="grid-row" aria-rowindex={1}>
          {COLUMNS.map(([column, name]) => (
            <div role="columnheader" class={`cell cell-${column}`} aria-sort={sortOf(choice, column)}>
              <button type="button" onClick={() => sort(column)}>
                {name}
                <span class="arrow" aria-hidden="true">
                  {choice.column === column ? (choice.down ? "▼" : "▲") : ""}
                </span>
              </button>
            </div>
          ))}
        </div>
      </div>
      <div role="rowgroup" class="grid-body" style={{ height: `${rows.length * view.row}px` }}>
        {shown.map((row, offset) => (
          <Line key={row.key} row={row} place={first + offset} height={view.row} active={row.key === active} />
        ))}
      </div>
    </div>
  );
}

function Line({ row, place, height, active }: { row: Row; place: number; height: number; active: boolean }): JSX.Element {
  const stage = stageOf(row);
  return (
    <div
      role="row"
      id={`row-${place}`}
      class={`grid-row line${active ? " active" : ""}${row.end ? " over" : ""}`}
      aria-rowindex={place + 2}
      aria-selected={active}
      style={{ transform: `translateY(${place * height}px)` }}
    >
      <div role="gridcell" class="cell cell-stage">
        <StageMark stage={stage} />
      </div>
      <div role="gridcell" class="cell cell-key">
        <a href={linkTo(row.key)} tabIndex={-1} title={plain(row.key)}>
          <Text value={row.key} mono />
        </a>
      </div>
      <div role="gridcell" class="cell cell-owner">
        <Maybe value={row.owner} />
      </div>
      <div role="gridcell" class="cell cell-heldBy">
        <Holder heldBy={row.heldBy} metadata={row.metadata} />
      </div>
      <div role="gridcell" class="cell cell-since">
        <Age since={row.since} stopped={row.end ? row.endedAt : undefined} />
      </div>
      <div role="gridcell" class="cell cell-left">
        <TimeLeft row={row} />
      </div>
      <div role="gridcell" class="cell cell-waiters">
        <Waiting number={row.end ? 0 : row.waiters} />
      </div>
      <div role="gridcell" class="cell cell-fencingToken mono">{row.fencingToken ?? "–"}</div>
    </div>
  );
}

const sortOf = (choice: Choice, column: Column): "ascending" | "descending" | "none" =>
  choice.column === column ? (choice.down ? "descending" : "ascending") : "none";

const headHeight = (grid: HTMLElement): number => grid.querySelector<HTMLElement>(".grid-head")?.offsetHeight ?? 0;
