// What the store gives, in plain words, and what the service allows.

import type { JSX } from "preact";

import { get } from "./api";
import { Refusal, usePolled } from "./parts";
import { span, Text } from "./text";
import type { Capabilities } from "./types";

// Words of the assurance, from the weakest.
const EXCLUSIVE: Record<string, string> = {
  unknown: "Not known: the server could not be asked what it gives.",
  volatile: "Weak: the server may drop a lock to make room, so two may hold one key.",
  process: "Within one process of the service: all who ask this process exclude each other, others do not.",
  host: "Within one machine: all processes on it exclude each other.",
  "until-failover": "Until a fail-over: when another server takes over, a lock that it had not heard of yet is lost.",
  primary: "On one server: it holds for as long as that server decides, and a fail-over may lose the last locks.",
  replicated: "On several servers: a lock is told to others before it counts.",
  region: "In one region: it survives the loss of a zone.",
  consensus: "By a majority of servers: it survives the loss of a minority of them.",
};

export function Store(): JSX.Element {
  const { value, refused } = usePolled(() => get<Capabilities>("/v1/capabilities"), 30, []);
  return (
    <section class="page" aria-labelledby="view-title">
      <h1 id="view-title">Store</h1>
      {refused ? <Refusal refused={refused} /> : null}
      {value ? (
        <>
          <Gives capabilities={value} />
          <Allows capabilities={value} />
        </>
      ) : null}
    </section>
  );
}

function Gives({ capabilities }: { capabilities: Capabilities }): JSX.Element {
  const { store, assurance } = capabilities;
  return (
    <>
      {assurance.known ? null : <p class="notice warn">The server of the store was not asked yet: the first use of a lock does that.</p>}
      <dl class="facts wide">
        {store ? (
          <>
            <dt>Store</dt>
            <dd>
              <Text value={store} mono />
            </dd>
          </>
        ) : null}
        <dt>Exclusion</dt>
        <dd>
          <strong>{assurance.exclusive}</strong>
          <br />
          {EXCLUSIVE[assurance.exclusive] ?? ""}
        </dd>
        <dt>A hold can end early</dt>
        <dd>
          {assurance.earlyLoss
            ? "Yes: a lock can be lost before its time without anybody releasing it. Check fencing tokens where it matters."
            : "No: it ends by release, by force, or when its time is over."}
        </dd>
        <dt>After a crash</dt>
        <dd>
          <Text value={assurance.durable} />
        </dd>
        <dt>Who decides that it is over</dt>
        <dd>
          <Text value={assurance.takeover} />
        </dd>
        <dt>Fencing tokens</dt>
        <dd>
          <Text value={assurance.fence} />
        </dd>
        <dt>Given up for clocks</dt>
        <dd>{(assurance.clockMargin * 100).toLocaleString("en")} % of each lease</dd>
      </dl>
      {assurance.notes.length ? (
        <ul class="notes">
          {assurance.notes.map((note) => (
            <li>
              <Text value={note} />
            </li>
          ))}
        </ul>
      ) : null}
    </>
  );
}

function Allows({ capabilities }: { capabilities: Capabilities }): JSX.Element {
  const { policies, sharing, authentication, version } = capabilities;
  return (
    <>
      <h2>What you may ask for</h2>
      <dl class="facts wide">
        <dt>Keys</dt>
        <dd>
          {policies.keys === "strict" ? "letters, digits and . _ : -" : "any text without control characters"}, at most{" "}
          {policies.maxKeyLength} characters
        </dd>
        <dt>Length of a lease</dt>
        <dd>
          {span(policies.minTtlMs)} to {span(policies.maxTtlMs)}
        </dd>
        <dt>Kept closed after a hold</dt>
        <dd>
          up to an age of {span(policies.maxHoldAtLeastMs)}, or {span(policies.maxLockDelayMs)} after one that was not released
        </dd>
        <dt>Waiting at once</dt>
        <dd>{policies.maxWaiters.toLocaleString("en")} claims of yours</dd>
        <dt>Credentials</dt>
        <dd>{authentication ? `asked for; they count for ${sharing.credentials}` : "nobody is asked for any"}</dd>
        <dt>Version</dt>
        <dd class="mono">{version}</dd>
      </dl>
    </>
  );
}
