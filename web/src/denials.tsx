// What was denied as it happens, and the audit log page by page.

import type { JSX } from "preact";
import { useEffect, useState } from "preact/hooks";

import { get, Refused } from "./api";
import type { Live } from "./live";
import { Refusal, usePolled } from "./parts";
import { linkTo } from "./places";
import { clockTime, Maybe, Text } from "./text";
import type { AuditLine, Session } from "./types";

const PAGE = 50;

export function Denials({ live, session }: { live: Live | null; session: Session }): JSX.Element {
  return (
    <section class="page wide-page" aria-labelledby="view-title">
      <h1 id="view-title">Denials and audit</h1>
      <h2>Denied just now</h2>
      {live ? <Now live={live} /> : <p class="quiet">Your credential may not follow the events.</p>}
      <h2>Audit log</h2>
      {session.mode === "local" ? (
        <p class="quiet">There is none in the local mode: nobody is asked who he is.</p>
      ) : session.may.manage ? (
        <Audit />
      ) : (
        <p class="quiet">The audit log is for those who manage the project.</p>
      )}
    </section>
  );
}

function Now({ live }: { live: Live }): JSX.Element {
  const [, setVersion] = useState(0);
  useEffect(() => live.watch(() => setVersion((was) => was + 1)), [live]);
  if (!live.denials.length) return <p class="quiet">Nothing was denied since this page was opened.</p>;
  return (
    <div class="scroll low" tabIndex={0} role="region" aria-label="Denied just now">
      <table>
        <thead>
          <tr>
            <th scope="col">At</th>
            <th scope="col">Who</th>
            <th scope="col">What</th>
            <th scope="col">Key</th>
          </tr>
        </thead>
        <tbody>
          {live.denials.map((denial) => (
            <tr>
              <td>{clockTime(denial.at)}</td>
              <td>
                <Maybe value={denial.by} />
              </td>
              <td>{denial.action}</td>
              <td>{denial.key ? <KeyLink name={denial.key} /> : "–"}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function KeyLink({ name }: { name: string }): JSX.Element {
  return (
    <a href={linkTo(name)}>
      <Text value={name} mono />
    </a>
  );
}

function Audit(): JSX.Element {
  const [older, setOlder] = useState<AuditLine[]>([]);
  const [only, setOnly] = useState(false);
  const [end, setEnd] = useState(false);
  const [failed, setFailed] = useState<Refused | null>(null);
  const { value, refused } = usePolled(() => get<{ lines: AuditLine[] }>("/v1/audit", { limit: PAGE }), 5, []);
  const newest = value?.lines ?? [];
  const last = older.at(-1) ?? newest.at(-1);
  const numbers = new Set(newest.map((line) => line.number));
  const all = [...newest, ...older.filter((line) => !numbers.has(line.number))];
  const lines = only ? all.filter((line) => line.action.startsWith("denied")) : all;
  const more = async (): Promise<void> => {
    if (!last) return;
    setFailed(null);
    try {
      const found = await get<{ lines: AuditLine[] }>("/v1/audit", { before: last.number, limit: PAGE });
      // What came in between two looks at the newest page, is read here as well.
      const gap = older.length ? [] : newest;
      setOlder([...gap, ...older, ...found.lines]);
      setEnd(found.lines.length < PAGE);
    } catch (error) {
      if (error instanceof Refused) setFailed(error);
    }
  };
  return (
    <>
      {refused ? <Refusal refused={refused} /> : null}
      <label class="check">
        <input type="checkbox" checked={only} onChange={(event) => setOnly(event.currentTarget.checked)} /> Only denials
      </label>
      {value && !lines.length ? <p class="quiet">{only ? "No denial is among the lines below." : "It is empty."}</p> : null}
      {lines.length ? (
        <div class="scroll" tabIndex={0} role="region" aria-label="Audit log">
          <table>
            <thead>
              <tr>
                <th scope="col">At</th>
                <th scope="col">Who</th>
                <th scope="col">What</th>
                <th scope="col">On</th>
                <th scope="col">Detail</th>
                <th scope="col">Times</th>
              </tr>
            </thead>
            <tbody>
              {lines.map((line) => (
                <tr key={line.number}>
                  <td>{clockTime(line.at)}</td>
                  <td>
                    <Maybe value={line.actor} />
                  </td>
                  <td>
                    <Text value={line.action} />
                  </td>
                  <td>
                    <Maybe value={line.target} mono />
                  </td>
                  <td>
                    <Maybe value={line.detail} />
                  </td>
                  <td>{line.count}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      ) : null}
      {failed ? <Refusal refused={failed} /> : null}
      {newest.length >= PAGE && !end ? (
        <button type="button" onClick={() => void more()}>
          Older lines
        </button>
      ) : null}
    </>
  );
}
