// One key: who holds it, since when and for how long, who waits, what was before, and what can be done about it.

import type { JSX } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";

import { type Action, ActionDialog, MAINTENANCE } from "./actions";
import { get } from "./api";
import { now } from "./clock";
import { Holds } from "./holds";
import type { Live } from "./live";
import { others } from "./machine";
import { Age, HolderFacts, MachineFact, Refusal, StageMark, TimeLeft, usePolled, Waiting } from "./parts";
import { Plot } from "./plot";
import { type Row, Rows, stageOf } from "./rows";
import { clockTime, count, Maybe, plain, span, Text } from "./text";
import type { ContentionOf, History, Session, Status, Waiter } from "./types";

interface Props {
  name: string;
  session: Session;
  live: Live | null;
  say: (said: string) => void;
  /** The dialog that a key of the keyboard asks for. */
  wanted: Action | null;
  taken: () => void;
}

export function OneKey({ name, session, live, say, wanted, taken }: Props): JSX.Element {
  const status = usePolled(() => get<Status>("/v1/locks/status", { key: name }), 2, [name]);
  // What the dialog was opened for, and what it then asks for, whatever becomes of the key meanwhile.
  const [dialog, setDialog] = useState<{ action: Action; status: Status } | null>(null);
  useKeyEvents(live, name, status.again);
  const row = useRow(name, status.value, live);
  const found = status.value;
  const can = canDo(session, found);
  const start = (action: Action): void => {
    if (found && can[action]) setDialog({ action, status: found });
  };
  useEffect(() => {
    if (!wanted) return;
    start(wanted);
    taken();
  }, [wanted]);

  return (
    <section class="page key-view" aria-labelledby="view-title">
      <p class="back">
        <a href="#/locks">← {session.may.list ? "All keys" : "Look up another key"}</a>
      </p>
      <h1 id="view-title" class="key-name">
        <Text value={name} mono />
      </h1>
      {status.refused ? <Refusal refused={status.refused} /> : null}
      {found ? (
        <>
          <Facts status={found} row={row} />
          <Actions session={session} can={can} start={start} />
          <Metadata metadata={found.metadata} />
        </>
      ) : null}
      {session.may.list ? <Waiters name={name} known={found?.waiters ?? 0} /> : null}
      {session.may.list ? <Past name={name} mark={found?.fencingToken ?? 0} state={found?.state ?? ""} since={row?.since ?? null} /> : null}
      {session.may.list ? <Contention name={name} /> : null}
      {dialog ? (
        <ActionDialog
          action={dialog.action}
          status={dialog.status}
          session={session}
          close={() => setDialog(null)}
          done={(said) => {
            setDialog(null);
            say(said);
            status.atOnce();
            if (live) void live.refresh(name).catch(() => undefined);
          }}
        />
      ) : null}
    </section>
  );
}

type Can = Record<Action, boolean>;

function canDo(session: Session, status: Status | null): Can {
  const taken = status !== null && status.state !== "free";
  const maintained = taken && status.metadata.maintenance === true && status.owner === MAINTENANCE;
  const hold = session.acts && session.may.hold;
  return {
    force: session.acts && session.may.force && taken && status.fencingToken !== null,
    hold: hold && status?.state === "free",
    extend: hold && maintained,
    end: hold && maintained,
  };
}

function Actions({ session, can, start }: { session: Session; can: Can; start: (action: Action) => void }): JSX.Element | null {
  if (!session.acts) {
    return session.may.force || session.may.hold ? (
      <p class="quiet">
        This dashboard only looks. <code>leased serve --ui act</code> lets it release and hold keys, too.
      </p>
    ) : null;
  }
  const buttons: [Action, string][] = [
    ["hold", "Hold for maintenance…"],
    ["extend", "Extend maintenance…"],
    ["end", "End maintenance…"],
    ["force", "Release by force…"],
  ];
  const shown = buttons.filter(([action]) => can[action]);
  if (!shown.length) return null;
  return (
    <div class="buttons left-side">
      {shown.map(([action, name]) => (
        <button type="button" class={action === "force" ? "grave" : ""} onClick={() => start(action)}>
          {name}
        </button>
      ))}
    </div>
  );
}

function Facts({ status, row }: { status: Status; row: Row | null }): JSX.Element {
  if (status.state === "free" || !row) {
    return (
      <div class="card free">
        <p class="big">Free</p>
        <p class="quiet">Whoever may have it and asks first, gets it.</p>
      </div>
    );
  }
  const closed = status.state === "closed";
  return (
    <div class="card">
      <div class="card-top">
        <StageMark stage={stageOf(row)} />
        <TimeLeft row={row} />
      </div>
      {closed ? <p class="quiet">Nobody holds it. It stays closed for a while, as its last holder asked.</p> : null}
      <dl class="facts wide">
        <HolderFacts status={status} />
        <dt>Fencing token</dt>
        <dd class="mono">{status.fencingToken ?? "–"}</dd>
        <dt>{closed ? "Was taken" : "Held for"}</dt>
        <dd>
          <Age since={row.since} />
          {status.acquiredAt ? <span class="aside"> since {clockTime(status.acquiredAt)}</span> : null}
        </dd>
        <dt>{closed ? "Opens at" : "Ends at"}</dt>
        <dd>
          {clockTime((closed ? status.freeAt : status.expiresAt) ?? "–")}
          <span class="aside">{closed ? "" : " unless it is renewed"}</span>
        </dd>
        <dt>Waiting</dt>
        <dd>
          <Waiting number={status.waiters ?? 0} />
        </dd>
      </dl>
    </div>
  );
}

function Metadata({ metadata }: { metadata: Record<string, unknown> }): JSX.Element | null {
  const pairs = others(metadata);
  if (!pairs.length) return null;
  return (
    <>
      <h2>Metadata</h2>
      <dl class="facts wide metadata">
        {pairs.map(([name, value]) => (
          <>
            <dt>
              <Text value={name} mono />
            </dt>
            <dd>
              <Text value={typeof value === "string" ? value : JSON.stringify(value)} mono />
            </dd>
          </>
        ))}
      </dl>
    </>
  );
}

function Waiters({ name, known }: { name: string; known: number }): JSX.Element {
  const ask = (): Promise<{ waiters: Waiter[]; total: number }> => get("/v1/locks/waiters", { key: name });
  const { value, refused } = usePolled(ask, 3, [name, known > 0]);
  return (
    <>
      <h2>Waiting, in order</h2>
      {refused ? <Refusal refused={refused} /> : null}
      {value && !value.total ? <p class="quiet">Nobody waits for it at this process of the service.</p> : null}
      {value?.total ? (
        <div class="scroll" tabIndex={0} role="region" aria-label="Waiting, in order">
          <table>
            <thead>
              <tr>
                <th scope="col">Place</th>
                <th scope="col">Who</th>
                <th scope="col">Owner</th>
                <th scope="col">Machine</th>
                <th scope="col">Waits for</th>
                <th scope="col">Gives up in</th>
              </tr>
            </thead>
            <tbody>
              {value.waiters.map((waiter, place) => (
                <tr>
                  <td>{place + 1}</td>
                  <td>
                    <Maybe value={waiter.heldBy} />
                  </td>
                  <td>
                    <Maybe value={waiter.owner} />
                  </td>
                  <td>
                    <MachineFact metadata={waiter.metadata} />
                  </td>
                  <td>{span(waiter.waitedMs)}</td>
                  <td>{waiter.leftMs === null ? "–" : span(waiter.leftMs)}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      ) : null}
      {value && value.total > value.waiters.length ? <p class="quiet">and {count(value.total - value.waiters.length, "more", "more")}</p> : null}
    </>
  );
}

function Past(props: { name: string; mark: number; state: string; since: number | null }): JSX.Element {
  const { name, mark, state, since } = props;
  const { value, refused, again } = usePolled(() => get<History>("/v1/locks/history", { key: name, limit: 20 }), 10, [name]);
  const first = useRef(true);
  useEffect(() => {
    if (!first.current) again();
    first.current = false;
  }, [mark, state]);
  return (
    <>
      <h2>Recent holds</h2>
      {refused ? <Refusal refused={refused} /> : null}
      {value && !value.kept ? <p class="quiet">This service keeps no history of holds.</p> : null}
      {value?.kept && !value.holds.length ? <p class="quiet">No hold of this key is on record.</p> : null}
      {value?.holds.length ? <Holds holds={value.holds} since={since} /> : null}
    </>
  );
}

/** How often others asked in vain, and how many waited, in the last hour; what this process of the service knows. */
function Contention({ name }: { name: string }): JSX.Element {
  const { value, refused } = usePolled(() => get<ContentionOf>("/v1/locks/contention", { key: name }), 10, [name]);
  return (
    <>
      <h2>Contention</h2>
      {refused ? <Refusal refused={refused} /> : null}
      {value ? (
        <Plot
          title={`Asked in vain and waiting, each ${span(value.intervalMs)}`}
          at={value.samples.map((sample) => sample.at)}
          series={[
            { name: "asked in vain", values: value.samples.map((sample) => sample.contended) },
            { name: "waiting", values: value.samples.map((sample) => sample.waiting) },
          ]}
          format={(number) => String(Math.round(number * 10) / 10)}
        />
      ) : null}
    </>
  );
}

function useKeyEvents(live: Live | null, name: string, again: () => void): void {
  useEffect(() => {
    if (!live) return undefined;
    return live.hear((event) => {
      if (event.key === name && event.event !== "contended" && event.event !== "renewed") again();
    });
  }, [live, name]);
}

/** The row of the key: the table's own where there is one, so that both say the same; else one kept here. */
function useRow(name: string, status: Status | null, live: Live | null): Row | null {
  const own = useRef<{ name: string; rows: Rows }>({ name, rows: new Rows() });
  if (own.current.name !== name) own.current = { name, rows: new Rows() };
  const told = useRef<Status | null>(null);
  if (status && status.key === name && told.current !== status) {
    told.current = status;
    const at = now();
    own.current.rows.looked(name, status, at);
    live?.rows.looked(name, status, at);
  }
  const kept = live?.rows.byKey.get(name);
  const row = kept && !kept.end ? kept : own.current.rows.byKey.get(name);
  return row && !row.end ? row : null;
}

export const titleOf = (name: string): string => plain(name).slice(0, 80);
