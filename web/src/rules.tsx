// The rule set of the project, and a form that tells what a member would be told.

import type { JSX, TargetedEvent } from "preact";
import { useState } from "preact/hooks";

import { get, post, Refused } from "./api";
import { Icon, Refusal, usePolled } from "./parts";
import { clockTime, lines, Maybe, Text } from "./text";
import type { RuleSet, Session, Verdicts } from "./types";

export function Rules({ session }: { session: Session }): JSX.Element {
  return (
    <section class="page" aria-labelledby="view-title">
      <h1 id="view-title">Rules</h1>
      {session.mode === "local" ? (
        <p class="quiet">There are none in the local mode: everybody who can connect may take any key.</p>
      ) : session.may.manage ? (
        <Managed />
      ) : (
        <p class="quiet">The rule set is for those who manage the project.</p>
      )}
    </section>
  );
}

function Managed(): JSX.Element {
  const { value, refused } = usePolled(() => get<RuleSet>("/v1/rule-set"), 30, []);
  return (
    <>
      {refused ? <Refusal refused={refused} /> : null}
      {value && !value.installed ? <p>No rule set is installed: any member may take any key.</p> : null}
      {value?.installed ? <Installed ruleSet={value} /> : null}
      <h2>Try it</h2>
      <TryIt />
    </>
  );
}

function Installed({ ruleSet }: { ruleSet: RuleSet }): JSX.Element {
  const rules = Object.entries(ruleSet.rules?.lock ?? {});
  return (
    <>
      <p>
        Rule set <Text value={ruleSet.ruleSet?.name ?? ""} mono />, installed {clockTime(ruleSet.installedAt ?? "")} by{" "}
        <Maybe value={ruleSet.installedBy} />. Admins, owners, functions and service credentials pass it. An operation without a rule
        is refused.
      </p>
      {["acquire", "renew"].map((operation) => {
        const source = rules.find(([name]) => name === operation)?.[1];
        return (
          <figure class="rule-text">
            <figcaption>{operation}</figcaption>
            {source === undefined ? (
              <p class="quiet">no rule: refused</p>
            ) : (
              <pre tabIndex={0} role="region" aria-label={`Rule for ${operation}`}>
                <code>
                  <bdi>{lines(source)}</bdi>
                </code>
              </pre>
            )}
          </figure>
        );
      })}
    </>
  );
}

interface Tried {
  who: string;
  key: string;
  verdicts: Verdicts;
}

function TryIt(): JSX.Element {
  const [tried, setTried] = useState<Tried | null>(null);
  const [refused, setRefused] = useState<Refused | null>(null);
  const [busy, setBusy] = useState(false);
  const submit = async (event: TargetedEvent<HTMLFormElement>): Promise<void> => {
    event.preventDefault();
    const form = new FormData(event.currentTarget);
    const text = (name: string): string => String(form.get(name) ?? "").trim();
    setBusy(true);
    setRefused(null);
    try {
      const body = { userId: text("userId"), key: String(form.get("key")), role: text("role"), groups: readGroups(text("groups")) };
      const verdicts = await post<Verdicts>("/v1/rule-set/check", body);
      setTried({ who: body.userId, key: body.key, verdicts });
    } catch (error) {
      setTried(null);
      if (error instanceof Refused) setRefused(error);
    } finally {
      setBusy(false);
    }
  };
  return (
    <>
      <form class="card form" onSubmit={(event) => void submit(event)} aria-busy={busy}>
        <label class="field">
          User
          <input name="userId" required maxLength={255} autocomplete="off" spellcheck={false} />
        </label>
        <label class="field">
          Role
          <select name="role">
            <option>member</option>
            <option>admin</option>
            <option>owner</option>
          </select>
        </label>
        <label class="field">
          Groups
          <input name="groups" autocomplete="off" spellcheck={false} />
          <span class="hint">
            Separated by commas; one of a kind as <code>kind:name</code>.
          </span>
        </label>
        <label class="field">
          Key
          <input name="key" class="mono" required maxLength={255} autocomplete="off" spellcheck={false} />
        </label>
        <div class="buttons left-side">
          <button type="submit" class="main" disabled={busy}>
            Try
          </button>
        </div>
      </form>
      <div aria-live="polite">{tried ? <Told tried={tried} /> : null}</div>
      {refused ? <Refusal refused={refused} /> : null}
    </>
  );
}

function Told({ tried }: { tried: Tried }): JSX.Element {
  return (
    <dl class="facts wide verdicts">
      {Object.entries(tried.verdicts).map(([operation, { allowed, reason }]) => (
        <>
          <dt>{operation}</dt>
          <dd>
            <span class={`stage ${allowed ? "stage-held" : "stage-lost"}`}>
              <Icon shape={allowed ? "held" : "lost"} />
              {allowed ? "allowed" : "refused"}
            </span>{" "}
            <Text value={reason} />
          </dd>
        </>
      ))}
    </dl>
  );
}

function readGroups(text: string): { name: string; kind: string }[] {
  const names = text.split(",").map((one) => one.trim());
  return names.filter(Boolean).map((one) => {
    const [kind, ...rest] = one.split(":");
    return rest.length ? { kind: kind as string, name: rest.join(":") } : { kind: "group", name: one };
  });
}
