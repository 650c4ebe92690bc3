// The recent holds of a key: a line of time on which each is as long as it was, and the same as a table.

import type { JSX } from "preact";
import { useLayoutEffect, useRef, useState } from "preact/hooks";

import { now } from "./clock";
import { Age, Icon } from "./parts";
import { Plot } from "./plot";
import { clockTime, Maybe, span, Text } from "./text";
import type { PastHold } from "./types";

const ENDS = { released: "released", force_released: "forced", expired: "expired", abandoned: "gone" } as const;
const WORDS = { released: "released", force_released: "released by force", expired: "expired", abandoned: "taken back" } as const;

const HEIGHT = 54;

/** `since`: when the hold that goes on began, on this machine's own clock. */
export function Holds({ holds, since }: { holds: readonly PastHold[]; since: number | null }): JSX.Element {
  const oldestFirst = [...holds].reverse();
  return (
    <>
      <Line holds={oldestFirst} age={since === null ? 0 : now() - since} />
      <div class="scroll" tabIndex={0} role="region" aria-label="Recent holds">
        <table>
          <thead>
            <tr>
              <th scope="col">Fencing token</th>
              <th scope="col">Held by</th>
              <th scope="col">Owner</th>
              <th scope="col">From</th>
              <th scope="col">Held for</th>
              <th scope="col">Had waited</th>
              <th scope="col">End</th>
            </tr>
          </thead>
          <tbody>
            {holds.map((hold) => (
              <tr key={hold.fencingToken}>
                <td class="mono">{hold.fencingToken}</td>
                <td>
                  <Maybe value={hold.heldBy} />
                </td>
                <td>
                  <Maybe value={hold.owner} />
                </td>
                <td>{clockTime(hold.acquiredAt)}</td>
                <td>{hold.endedAt === null ? <Age since={since} /> : span(lengthOf(hold))}</td>
                <td>{hold.waitedMs === null ? "–" : span(hold.waitedMs)}</td>
                <td>
                  <End hold={hold} />
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      {oldestFirst.some((hold) => hold.waitedMs) ? (
        <Plot
          title="Waited for each of these holds, and held"
          at={oldestFirst.map((hold) => hold.acquiredAt)}
          series={[
            { name: "waited", values: oldestFirst.map((hold) => hold.waitedMs) },
            { name: "held", values: oldestFirst.map((hold) => (hold.endedAt === null ? null : lengthOf(hold))) },
          ]}
          format={span}
          least={10}
          bars
        />
      ) : null}
    </>
  );
}

function End({ hold }: { hold: PastHold }): JSX.Element {
  if (hold.end === null) {
    return (
      <span class="stage stage-held">
        <Icon shape="held" />
        goes on
      </span>
    );
  }
  return (
    <span class={`stage stage-${ENDS[hold.end]}`}>
      <Icon shape={ENDS[hold.end]} />
      {WORDS[hold.end]}
      {hold.reason ? (
        <>
          : <Text value={hold.reason} />
        </>
      ) : null}
    </span>
  );
}

/** Waits are drawn thin before the holds that they led to. */
function Line({ holds, age }: { holds: readonly PastHold[]; age: number }): JSX.Element {
  const frame = useRef<HTMLDivElement>(null);
  const [width, setWidth] = useState(600);
  useLayoutEffect(() => {
    const element = frame.current as HTMLDivElement;
    const observer = new ResizeObserver(() => setWidth(Math.max(160, element.clientWidth)));
    observer.observe(element);
    return () => observer.disconnect();
  }, []);
  const from = Math.min(...holds.map((hold) => Date.parse(hold.acquiredAt) - (hold.waitedMs ?? 0)));
  const to = Math.max(...holds.map((hold) => endOf(hold) ?? Date.parse(hold.acquiredAt) + age), from + 1000);
  const x = (at: number): number => ((at - from) / (to - from)) * width;
  return (
    <div class="timeline" ref={frame}>
      <svg width={width} height={HEIGHT} viewBox={`0 0 ${width} ${HEIGHT}`} role="img" aria-label={`Holds from ${clockTime(from)} to ${clockTime(to)}`}>
        <line class="rule" x1="0" x2={width} y1="30" y2="30" />
        {holds.map((hold) => {
          const begun = Date.parse(hold.acquiredAt);
          const ended = endOf(hold) ?? to;
          const waited = hold.waitedMs ?? 0;
          return (
            <g>
              {waited ? <rect class="hold-wait" x={x(begun - waited)} y="26" width={Math.max(1, x(begun) - x(begun - waited))} height="3" /> : null}
              <rect class={`hold hold-${hold.end ?? "on"}`} x={x(begun)} y="10" width={Math.max(2, x(ended) - x(begun) - 1)} height="19" />
            </g>
          );
        })}
        <text class="tick" x="0" y={HEIGHT - 6}>
          {clockTime(from)}
        </text>
        <text class="tick" x={width} y={HEIGHT - 6} text-anchor="end">
          {clockTime(to)}
        </text>
      </svg>
    </div>
  );
}

const endOf = (hold: PastHold): number | null => (hold.endedAt === null ? null : Date.parse(hold.endedAt));
const lengthOf = (hold: PastHold): number => (endOf(hold) ?? 0) - Date.parse(hold.acquiredAt);
