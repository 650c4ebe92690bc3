// What can be done to a key from here, each with a dialog that says what it will do. Nothing is done twice by itself.

import type { ComponentChildren, JSX, TargetedEvent } from "preact";
import { useState } from "preact/hooks";

import { post, Refused } from "./api";
import { Dialog, HolderFacts, Refusal } from "./parts";
import { clockTime, count, plain, span, Text } from "./text";
import type { Granted, Session, Status } from "./types";

export const MAINTENANCE = "maintenance";

export type Action = "force" | "hold" | "extend" | "end";

const MINUTE = 60_000;
const LENGTHS = [5, 15, 30, 60, 120, 240, 480, 720, 1440].map((minutes) => minutes * MINUTE);
/** How long the hold lasts that is taken only to be released: long enough for the release to arrive. */
const TO_END = MINUTE;

interface Asked {
  status: Status;
  session: Session;
  close: () => void;
  /** What to say once it is done; the key is looked at again then. */
  done: (said: string) => void;
}

export function ActionDialog({ action, ...asked }: Asked & { action: Action }): JSX.Element {
  if (action === "force") return <Force {...asked} />;
  if (action === "end") return <End {...asked} />;
  return <Hold {...asked} again={action === "extend"} />;
}

/** The frame of each: what it is about, its own fields, and what the service said when it refused. */
function Frame(props: {
  title: string;
  verb: string;
  grave?: boolean;
  close: () => void;
  act: (form: FormData) => Promise<void>;
  children: ComponentChildren;
}): JSX.Element {
  const [busy, setBusy] = useState(false);
  const [refused, setRefused] = useState<Refused | null>(null);
  const submit = async (event: TargetedEvent<HTMLFormElement>): Promise<void> => {
    event.preventDefault();
    const form = new FormData(event.currentTarget);
    setBusy(true);
    setRefused(null);
    try {
      await props.act(form);
    } catch (error) {
      setRefused(error instanceof Refused ? error : new Refused(0, "", String(error)));
    } finally {
      setBusy(false);
    }
  };
  return (
    <Dialog title={props.title} close={props.close}>
      <form onSubmit={(event) => void submit(event)} aria-busy={busy}>
        {props.children}
        {refused ? <Refusal refused={refused} /> : null}
        <div class="buttons">
          <button type="button" onClick={props.close}>
            Cancel
          </button>
          <button type="submit" class={props.grave ? "grave" : "main"} disabled={busy}>
            {props.verb}
          </button>
        </div>
      </form>
    </Dialog>
  );
}

function Reason({ why }: { why: string }): JSX.Element {
  return (
    <label class="field">
      Reason
      <input name="reason" required maxLength={200} autocomplete="off" autofocus />
      <span class="hint">{why}</span>
    </label>
  );
}

function About({ status }: { status: Status }): JSX.Element {
  return (
    <dl class="facts">
      <dt>Key</dt>
      <dd>
        <Text value={status.key} mono />
      </dd>
      <HolderFacts status={status} />
      <dt>Since</dt>
      <dd>{status.acquiredAt ? clockTime(status.acquiredAt) : "–"}</dd>
      <dt>Fencing token</dt>
      <dd class="mono" data-fencing-token>
        {status.fencingToken ?? "–"}
      </dd>
    </dl>
  );
}

function Force({ status, close, done }: Asked): JSX.Element {
  const act = async (form: FormData): Promise<void> => {
    const reason = String(form.get("reason")).trim();
    const { released } = await post<{ released: boolean }>("/v1/locks/force-release", {
      key: status.key,
      fencingToken: status.fencingToken,
      reason,
    });
    const which = `the hold with fencing token ${status.fencingToken}`;
    done(released ? `Released by force: ${which}.` : `Nothing was released: ${which} had ended already.`);
  };
  return (
    <Frame title="Release by force" verb="Release by force" grave close={close} act={act}>
      <About status={status} />
      <p>
        Whoever holds this key is not stopped by that: the work may go on while the next one begins. Only this very hold is
        ended, the one with the fencing token above; a hold that came after it is left alone.
      </p>
      <Reason why="Goes to the audit log." />
    </Frame>
  );
}

function Hold({ status, session, close, done, again }: Asked & { again: boolean }): JSX.Element {
  const act = async (form: FormData): Promise<void> => {
    const ttlMs = Number(form.get("length"));
    const granted = await take(status.key, session, { ttlMs, reason: String(form.get("reason")).trim() });
    const until = `for ${span(granted.leftMs ?? ttlMs)}, with fencing token ${granted.fencingToken}`;
    done(again ? `The maintenance goes on ${until}.` : `Held for maintenance ${until}.`);
  };
  const before = typeof status.metadata.reason === "string" ? status.metadata.reason : "";
  return (
    <Frame
      title={again ? "Extend the maintenance" : "Hold for maintenance"}
      verb={again ? "Extend" : "Hold"}
      close={close}
      act={act}
    >
      <p>
        {again ? "The hold is taken anew, from now on, on " : "Nobody else gets this key meanwhile: "}
        <Text value={status.key} mono />
      </p>
      <label class="field">
        For how long
        <select name="length">
          {LENGTHS.map((length) => (
            <option value={length} selected={length === 30 * MINUTE}>
              {length < 60 * MINUTE ? count(length / MINUTE, "minute") : count(length / (60 * MINUTE), "hour")}
            </option>
          ))}
        </select>
        <span class="hint">Nothing renews it: it ends by itself.</span>
      </label>
      <label class="field">
        Reason
        <input name="reason" required maxLength={200} autocomplete="off" autofocus defaultValue={plain(before)} />
        <span class="hint">Shown to everybody who may see the key.</span>
      </label>
    </Frame>
  );
}

function End({ status, session, close, done }: Asked): JSX.Element {
  const act = async (): Promise<void> => {
    const reason = typeof status.metadata.reason === "string" ? status.metadata.reason : "ending";
    const granted = await take(status.key, session, { ttlMs: TO_END, reason });
    const body = { key: status.key, token: granted.token };
    const { released } = await post<{ released: boolean }>("/v1/locks/release", body);
    done(released ? "The maintenance has ended; the key is free." : "The maintenance had ended already.");
  };
  return (
    <Frame title="End the maintenance" verb="End it" close={close} act={act}>
      <About status={status} />
      <p>The key is free for others at once.</p>
    </Frame>
  );
}

/** Take the key as the maintenance; whoever holds it as that already, the same user or service, takes it over. */
async function take(key: string, session: Session, ask: { ttlMs: number; reason: string }): Promise<Granted> {
  const granted = await post<Granted>("/v1/locks/acquire", {
    key,
    ttlMs: ask.ttlMs,
    owner: MAINTENANCE,
    metadata: { maintenance: true, reason: ask.reason },
    ...(session.mode === "local" ? { client: "dashboard" } : {}),
  });
  if (granted.acquired) return granted;
  const who = granted.holder?.heldBy || granted.holder?.owner;
  const others = granted.holder?.metadata.maintenance === true;
  throw new Refused(
    409,
    "LOCK_NOT_ACQUIRED",
    who ? `the key is held by ${plain(who)}` : "the key is held, or closed for a while",
    others
      ? "this maintenance was begun by somebody else: only the same user or service can extend or end it"
      : "wait until it is free, or release it by force first",
  );
}
