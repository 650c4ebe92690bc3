// The live table of keys with its filters; for who may not list, a place to look up one key.

import type { JSX } from "preact";
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";

import type { Choice, Column, Group } from "./choice";
import { choose } from "./choice";
import { everySecond, now } from "./clock";
import type { Live } from "./live";
import { MOST_KEYS } from "./live";
import { linkTo, open } from "./places";
import { COLUMNS, Table } from "./table";
import { count } from "./text";

const GROUPS: readonly [Group, string][] = [
  ["all", "All"],
  ["held", "Held"],
  ["renewing", "Renewing"],
  ["risk", "At risk"],
  ["waiting", "Waited for"],
  ["maintenance", "Maintenance"],
  ["closed", "Closed"],
  ["over", "Just ended"],
];

// While the order depends on what changes all the time, it is made anew this often only: rows must not run away.
const REORDER = 1000;

// What was chosen stays while one looks at a key and comes back.
let lastChoice: Choice = { prefix: "", who: "", group: "all", column: "key", down: false };

export function Locks({ live }: { live: Live }): JSX.Element {
  const [choice, setChoice] = useState(lastChoice);
  const [version, setVersion] = useState(0);
  const redrawn = useRef(0);
  const behind = useRef(false);
  lastChoice = choice;
  useLayoutEffect(() => live.watch(() => setVersion((was) => was + 1)), [live]);
  useEffect(() => {
    const timer = setTimeout(() => live.narrow(choice.prefix), 300);
    return () => clearTimeout(timer);
  }, [choice.prefix]);
  useEffect(() => () => live.look([]), [live]);
  useEffect(() => everySecond(() => behind.current && setVersion((was) => was + 1)), []);

  const chosen = useRef(choose(live.rows, choice));
  const asked = useRef(choice);
  useMemo(() => {
    const due = !live.complete || now() - redrawn.current > (choice.column === "key" ? 0 : REORDER);
    behind.current = !due && asked.current === choice;
    if (!behind.current) {
      chosen.current = choose(live.rows, choice);
      asked.current = choice;
      redrawn.current = now();
    }
  }, [version, choice]);
  const { rows, counts } = chosen.current;
  const change = (part: Partial<Choice>): void => setChoice({ ...choice, ...part });
  const sort = (column: Column): void => change({ column, down: choice.column === column && !choice.down });

  return (
    <section class="locks" aria-labelledby="view-title">
      <h1 id="view-title" class="unseen">
        Locks
      </h1>
      <div class="tools" role="search">
        <label class="tool grow">
          <span>Key begins with</span>
          <input
            id="filter"
            type="search"
            autocomplete="off"
            spellcheck={false}
            value={choice.prefix}
            onInput={(event) => change({ prefix: event.currentTarget.value })}
          />
        </label>
        <label class="tool grow">
          <span title="Part of the owner, of who holds it, or of the machine">Owner or machine</span>
          <input
            type="search"
            autocomplete="off"
            spellcheck={false}
            value={choice.who}
            onInput={(event) => change({ who: event.currentTarget.value })}
          />
        </label>
        <label class="tool only-narrow">
          <span>Sort by</span>
          <select value={choice.column} onChange={(event) => change({ column: event.currentTarget.value as Column, down: false })}>
            {COLUMNS.map(([column, name]) => (
              <option value={column}>{name}</option>
            ))}
          </select>
        </label>
      </div>
      <div class="chips" role="group" aria-label="State">
        {GROUPS.map(([group, name]) => (
          <button
            type="button"
            class={`chip chip-${group}`}
            aria-pressed={choice.group === group}
            onClick={() => change({ group })}
          >
            {name} <span class="number">{counts[group].toLocaleString("en")}</span>
          </button>
        ))}
      </div>
      <Summary live={live} shown={rows.length} />
      <Table rows={rows} choice={choice} sort={sort} look={(keys) => live.look(keys)} />
    </section>
  );
}

function Summary({ live, shown }: { live: Live; shown: number }): JSX.Element | null {
  if (live.truncated) {
    return <p class="notice warn">There are more than {count(MOST_KEYS, "key")}. Name how yours begin to see them all.</p>;
  }
  if (!live.complete && !live.trouble) return <p class="quiet">Reading… {count(live.rows.keys.length, "key")} so far</p>;
  if (live.trouble || shown) return null;
  return (
    <p class="quiet">
      {live.rows.keys.length ? "No key fits what is asked for above." : "No key is held. One that somebody takes appears here at once."}
    </p>
  );
}

/** For everybody: one key by its name. */
export function LookUp({ narrow }: { narrow: boolean }): JSX.Element {
  const [key, setKey] = useState("");
  return (
    <section class="page" aria-labelledby="view-title">
      <h1 id="view-title">Look up a key</h1>
      {narrow ? (
        <p>
          You may see any key whose name you know. Lists, events and releases by force are for admins and owners, and for service
          credentials with the scope <code>locks.manage</code>.
        </p>
      ) : null}
      <form
        class="row"
        role="search"
        onSubmit={(event) => {
          event.preventDefault();
          if (key) open(linkTo(key));
        }}
      >
        <label class="field grow">
          Key
          <input
            id="filter"
            class="mono"
            autocomplete="off"
            spellcheck={false}
            required
            maxLength={255}
            value={key}
            onInput={(event) => setKey(event.currentTarget.value)}
          />
        </label>
        <button type="submit" class="main">
          Look it up
        </button>
      </form>
    </section>
  );
}
