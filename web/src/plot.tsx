// Plots by hand: lines and bars over time, read with a pointer, with the arrow keys, or as a table.

import type { JSX, TargetedKeyboardEvent } from "preact";
import { useLayoutEffect, useRef, useState } from "preact/hooks";

import { clockTime } from "./text";

export interface Series {
  name: string;
  values: readonly (number | null)[];
}

interface Props {
  title: string;
  at: readonly (string | number)[];
  series: readonly Series[];
  format: (value: number) => string;
  bars?: boolean;
  height?: number;
  /** How high the plot reaches at least. */
  least?: number;
}

const LEFT = 56;
const BOTTOM = 20;
const TOP = 8;

/** Series differ by the dashes of their lines and by their names beside them; colour only repeats that. */
export function Plot({ title, at, series, format, bars = false, height = 150, least = 2 }: Props): JSX.Element {
  const frame = useRef<HTMLDivElement>(null);
  const [width, setWidth] = useState(600);
  const [picked, setPicked] = useState<number | null>(null);
  useLayoutEffect(() => {
    const element = frame.current as HTMLDivElement;
    const observer = new ResizeObserver(() => setWidth(Math.max(160, element.clientWidth)));
    observer.observe(element);
    return () => observer.disconnect();
  }, []);

  const last = at.length - 1;
  const shown = picked === null ? last : Math.min(picked, last);
  const top = Math.max(least, ceiling(series, bars));
  const step = (width - LEFT - 8) / Math.max(1, bars ? at.length : last);
  const x = (place: number): number => LEFT + step * (bars ? place + 0.5 : place);
  const y = (value: number): number => TOP + (height - TOP - BOTTOM) * (1 - value / top);
  const move = (event: TargetedKeyboardEvent<HTMLDivElement>): void => {
    const to = { ArrowLeft: shown - 1, ArrowRight: shown + 1, Home: 0, End: last }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    setPicked(Math.max(0, Math.min(last, to)));
  };
  const said = series.map((one) => `${one.name} ${say(one.values[shown], format)}`).join(", ");

  return (
    <figure class="plot">
      <figcaption>
        <span class="plot-title">{title}</span>
        <span class="plot-at">{at[shown] === undefined ? "" : clockTime(at[shown])}</span>
      </figcaption>
      <ul class="legend">
        {series.map((one, place) => (
          <li>
            <svg class="swatch" viewBox="0 0 22 8" aria-hidden="true">
              {bars ? <rect class={`fill fill-${place}`} width="22" height="8" /> : <path class={`stroke stroke-${place}`} d="M0 4H22" />}
            </svg>
            {one.name} <strong>{say(one.values[shown], format)}</strong>
          </li>
        ))}
      </ul>
      <div
        class="plot-frame"
        ref={frame}
        tabIndex={0}
        role="img"
        aria-label={`${title}. ${said}`}
        onKeyDown={move}
        onPointerMove={(event) => {
          const along = event.clientX - event.currentTarget.getBoundingClientRect().left - LEFT;
          setPicked(Math.max(0, Math.min(last, Math.round(along / step - (bars ? 0.5 : 0)))));
        }}
        onPointerLeave={() => setPicked(null)}
      >
        <svg width={width} height={height} viewBox={`0 0 ${width} ${height}`} aria-hidden="true">
          {[0, 0.5, 1].map((part) => (
            <g>
              <line class="rule" x1={LEFT} x2={width - 8} y1={y(top * part)} y2={y(top * part)} />
              <text class="tick" x={LEFT - 8} y={y(top * part) + 4} text-anchor="end">
                {format(top * part)}
              </text>
            </g>
          ))}
          {last >= 0 ? (
            <>
              <text class="tick" x={LEFT} y={height - 4}>
                {clockTime(at[0] as string)}
              </text>
              <text class="tick" x={width - 8} y={height - 4} text-anchor="end">
                {clockTime(at[last] as string)}
              </text>
            </>
          ) : null}
          {picked !== null && last >= 0 ? <line class="cursor" x1={x(shown)} x2={x(shown)} y1={TOP} y2={height - BOTTOM} /> : null}
          {bars ? stacked(series, { x, y, step }) : series.map((one, place) => lineOf(one, place, { x, y }))}
        </svg>
      </div>
      <AsTable at={at} series={series} format={format} title={title} />
    </figure>
  );
}

function AsTable({ at, series, format, title }: Pick<Props, "at" | "series" | "format" | "title">): JSX.Element {
  const [open, setOpen] = useState(false);
  const newest = open ? at.map((_, place) => place).reverse().slice(0, 60) : [];
  return (
    <details onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>As a table</summary>
      <div class="scroll" tabIndex={0} role="region" aria-label={`${title}, as a table`}>
        <table>
          <thead>
            <tr>
              <th scope="col">At</th>
              {series.map((one) => (
                <th scope="col">{one.name}</th>
              ))}
            </tr>
          </thead>
          <tbody>
            {newest.map((place) => (
              <tr>
                <th scope="row">{clockTime(at[place] as string)}</th>
                {series.map((one) => (
                  <td>{say(one.values[place], format)}</td>
                ))}
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </details>
  );
}

const say = (value: number | null | undefined, format: (value: number) => string): string =>
  value === null || value === undefined ? "–" : format(value);

interface Scales {
  x: (place: number) => number;
  y: (value: number) => number;
}

/** A line, and a dot for each value that has no neighbour to be joined with. */
function lineOf(one: Series, index: number, { x, y }: Scales): JSX.Element {
  const known = (place: number): boolean => (one.values[place] ?? null) !== null;
  return (
    <>
      <path class={`stroke stroke-${index}`} d={path(one, { x, y })} />
      {one.values.map((value, place) =>
        value === null || known(place - 1) || known(place + 1) ? null : (
          <circle class={`fill fill-${index}`} cx={x(place)} cy={y(value)} r="3" />
        ),
      )}
    </>
  );
}

function path(one: Series, { x, y }: Scales): string {
  let text = "";
  let lifted = true;
  one.values.forEach((value, place) => {
    if (value === null) lifted = true;
    else {
      text += `${lifted ? "M" : "L"}${x(place).toFixed(1)} ${y(value).toFixed(1)}`;
      lifted = false;
    }
  });
  return text;
}

function stacked(
  series: readonly Series[],
  { x, y, step }: Scales & { step: number },
): JSX.Element[] {
  const wide = Math.max(1, step * 0.8);
  const sums: number[] = [];
  return series.flatMap((one, index) =>
    one.values.flatMap((value, place) => {
      if (!value) return [];
      const below = sums[place] ?? 0;
      sums[place] = below + value;
      const high = y(below) - y(below + value);
      return [<rect class={`fill fill-${index}`} x={x(place) - wide / 2} y={y(below + value)} width={wide} height={Math.max(1, high)} />];
    }),
  );
}

function ceiling(series: readonly Series[], stackedUp: boolean): number {
  let most = 0;
  const length = Math.max(0, ...series.map((one) => one.values.length));
  for (let place = 0; place < length; place += 1) {
    const values = series.map((one) => one.values[place] ?? 0);
    most = Math.max(most, stackedUp ? values.reduce((sum, value) => sum + value, 0) : Math.max(...values));
  }
  if (most <= 0) return 1;
  const size = 10 ** Math.floor(Math.log10(most));
  return ([1, 2, 5, 10].find((part) => part * size >= most) ?? 10) * size;
}
