// The frame around the views: who is signed in, where one can go, what just happened, and the keys of the keyboard.

import type { JSX } from "preact";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";

import type { Action } from "./actions";
import { onRefusal, readSession, Refused, signOut } from "./api";
import { everySecond, now } from "./clock";
import { Denials } from "./denials";
import { Help } from "./help";
import { Live } from "./live";
import { Locks, LookUp } from "./locks";
import { OneKey, titleOf } from "./onekey";
import { OverviewView } from "./overview";
import { Refusal } from "./parts";
import { open, type Place, usePlace, type View } from "./places";
import { Rules } from "./rules";
import { SignIn } from "./signin";
import { Store } from "./store";
import { Text } from "./text";
import type { Session } from "./types";

/** How often the sign-in is renewed while somebody looks. */
const RENEW = 60_000;

export function App(): JSX.Element | null {
  const [session, setSession] = useState<Session | null>(null);
  const [refused, setRefused] = useState<Refused | null>(null);
  const [said, setSaid] = useState("");
  const read = (): void => {
    readSession()
      .then((found) => {
        setSession(found);
        setRefused(null);
      })
      .catch((error: unknown) => error instanceof Refused && setRefused(error));
  };
  useEffect(() => {
    read();
    let due = now() + RENEW;
    const stopTicks = everySecond((at) => {
      if (at < due) return;
      due = at + RENEW;
      read();
    });
    const stopRefusals = onRefusal((one) => {
      if (one.status !== 401) return;
      setSession((was) => {
        if (was?.signedIn && was.mode === "credentials") setSaid("Your sign-in has ended: it was too long ago, or its credential is not valid any more.");
        return was?.mode === "credentials" ? { ...was, signedIn: false } : was;
      });
    });
    return () => {
      stopTicks();
      stopRefusals();
    };
  }, []);
  if (!session) return refused ? <Unreachable refused={refused} again={read} /> : null;
  if (session.mode === "credentials" && !session.signedIn) {
    return (
      <SignIn
        said={said}
        entered={(found) => {
          setSaid("");
          setSession(found);
        }}
      />
    );
  }
  const leave = (): void => {
    signOut()
      .then(() => {
        setSaid("You are signed out.");
        setSession({ ...session, signedIn: false });
        open("#/locks");
      })
      .catch((error: unknown) => error instanceof Refused && setRefused(error));
  };
  return <Inside key={`${session.principal?.project}/${session.principal?.name}`} session={session} leave={leave} refused={refused} />;
}

function Unreachable({ refused, again }: { refused: Refused; again: () => void }): JSX.Element {
  return (
    <main class="sign-in" id="main">
      <h1>leased</h1>
      <Refusal refused={refused} />
      <button type="button" onClick={again}>
        Ask again
      </button>
    </main>
  );
}

function viewsOf(session: Session): [View, string][] {
  const views: [View, string][] = [["locks", session.may.list ? "Locks" : "Look up"]];
  if (session.may.list) views.push(["overview", "Overview"], ["denials", "Denials"]);
  if (session.may.manage || session.mode === "local") views.push(["rules", "Rules"]);
  return [...views, ["store", "Store"]];
}

function Inside({ session, leave, refused }: { session: Session; leave: () => void; refused: Refused | null }): JSX.Element {
  const place = usePlace();
  const [live] = useState(() => (session.may.list ? begin() : null));
  const [help, setHelp] = useState(false);
  const [wanted, setWanted] = useState<Action | null>(null);
  const [said, setSaid] = useState("");
  const views = viewsOf(session);
  useEffect(() => () => live?.stop(), [live]);
  useTitle(place, views);
  useEffect(() => setSaid(""), [place.view, place.key]);
  useKeyboard(place, { views, help: () => setHelp(true), want: setWanted });

  return (
    <>
      <a class="skip" href="#main" onClick={(event) => skip(event)}>
        To the content
      </a>
      <Header session={session} live={live} leave={leave} help={() => setHelp(true)} />
      <nav aria-label="Views">
        {views.map(([view, name]) => (
          <a href={`#/${view}`} aria-current={place.view === view || (view === "locks" && place.view === "key") ? "page" : undefined}>
            {name}
          </a>
        ))}
      </nav>
      <main id="main" tabIndex={-1}>
        {session.mode === "local" ? (
          <p class="notice local">Local mode: nobody is asked for credentials. Whoever can connect may do everything.</p>
        ) : null}
        {refused ? <Refusal refused={refused} /> : null}
        {live ? <Trouble live={live} /> : null}
        <div role="status" class={said ? "notice good" : "unseen"}>
          {said}
        </div>
        <Inner place={place} session={session} live={live} say={setSaid} wanted={wanted} taken={() => setWanted(null)} />
      </main>
      {help ? <Help close={() => setHelp(false)} /> : null}
    </>
  );
}

/** Ask for the keys before anything is drawn: they are what one waits for. */
function begin(): Live {
  const live = new Live();
  live.start();
  return live;
}

interface InnerProps {
  place: Place;
  session: Session;
  live: Live | null;
  say: (said: string) => void;
  wanted: Action | null;
  taken: () => void;
}

function Inner({ place, session, live, ...more }: InnerProps): JSX.Element {
  if (place.view === "key" && place.key) return <OneKey key={place.key} name={place.key} session={session} live={live} {...more} />;
  if (place.view === "store") return <Store />;
  if (place.view === "overview" && live) return <OverviewView />;
  if (place.view === "denials" && live) return <Denials live={live} session={session} />;
  if (place.view === "rules" && viewsOf(session).some(([view]) => view === "rules")) return <Rules session={session} />;
  return live ? <Locks live={live} /> : <LookUp narrow />;
}

function Header(props: { session: Session; live: Live | null; leave: () => void; help: () => void }): JSX.Element {
  const { session, live, leave, help } = props;
  return (
    <header>
      <span class="brand">
        <svg viewBox="0 0 32 32" aria-hidden="true">
          <path class="brand-ring" d="M16 5a11 11 0 1 0 11 11" />
          <circle class="brand-dot" cx="16" cy="16" r="4" />
        </svg>
        leased
      </span>
      {session.principal && session.mode === "credentials" ? (
        <span class="who">
          <Text value={session.principal.name} />
          {session.principal.role ? <span class="aside"> {session.principal.role}</span> : null}
          <span class="aside"> of project </span>
          <Text value={session.principal.project} />
        </span>
      ) : (
        <span class="who" />
      )}
      {live ? <StreamState live={live} /> : null}
      <button type="button" class="plain" aria-label="Keyboard help" onClick={help}>
        ?
      </button>
      {session.mode === "credentials" ? (
        <button type="button" class="plain" onClick={leave}>
          Sign out
        </button>
      ) : null}
    </header>
  );
}

function useWatched(live: Live): void {
  const [, setVersion] = useState(0);
  useEffect(() => live.watch(() => setVersion((was) => was + 1)), [live]);
}

const STREAM = { opening: "connecting", open: "live", broken: "reconnecting", refused: "no events" } as const;

function StreamState({ live }: { live: Live }): JSX.Element {
  useWatched(live);
  return (
    <span class={`stream stream-${live.stream}`}>
      <span class="dot" aria-hidden="true" />
      {STREAM[live.stream]}
    </span>
  );
}

function Trouble({ live }: { live: Live }): JSX.Element | null {
  useWatched(live);
  return live.trouble ? <Refusal refused={live.trouble} /> : null;
}

function useTitle(place: Place, views: readonly [View, string][]): void {
  useEffect(() => {
    const view = views.find(([one]) => one === place.view)?.[1];
    document.title = `${place.view === "key" ? titleOf(place.key) : (view ?? "Locks")} · leased`;
  }, [place]);
}

function skip(event: Event): void {
  event.preventDefault();
  document.getElementById("main")?.focus();
}

interface Keyboard {
  views: readonly [View, string][];
  help: () => void;
  want: (action: Action) => void;
}

function useKeyboard(place: Place, keyboard: Keyboard): void {
  const latest = useRef({ place, keyboard });
  latest.current = { place, keyboard };
  useLayoutEffect(() => {
    const pressed = (event: KeyboardEvent): void => press(event, latest.current.place, latest.current.keyboard);
    addEventListener("keydown", pressed);
    return () => removeEventListener("keydown", pressed);
  }, []);
}

function press(event: KeyboardEvent, place: Place, { views, help, want }: Keyboard): void {
  if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
  const target = event.target as HTMLElement;
  if (target.matches("input, select, textarea")) {
    if (event.key === "Escape") leaveField(target);
    return;
  }
  if (event.key === "/") toFilter(place);
  else if (event.key === "?") help();
  else if (event.key === "Escape" && place.view !== "locks") open("#/locks");
  else if (event.key === "f" && place.view === "key") want("force");
  else if (event.key === "m" && place.view === "key") want("hold");
  else if (event.key >= "1" && event.key <= String(views.length)) open(`#/${views[Number(event.key) - 1]?.[0]}`);
  else return;
  event.preventDefault();
}

/** Empty a filter first, and leave it for the table then. */
function leaveField(field: HTMLElement): void {
  if (field instanceof HTMLInputElement && field.type === "search" && field.value) {
    field.value = "";
    field.dispatchEvent(new Event("input", { bubbles: true }));
  } else {
    field.blur();
    document.querySelector<HTMLElement>("[role=grid]")?.focus();
  }
}

function toFilter(place: Place): void {
  if (place.view !== "locks") open("#/locks");
  requestAnimationFrame(() => document.getElementById("filter")?.focus());
}
