// Where one shows a credential. The page forgets it at once; what stays is a cookie that no script can read.

import type { JSX, TargetedEvent } from "preact";
import { useRef, useState } from "preact/hooks";

import { Refused, signIn } from "./api";
import { Refusal } from "./parts";
import type { Session } from "./types";

export function SignIn({ entered, said }: { entered: (session: Session) => void; said: string }): JSX.Element {
  const field = useRef<HTMLInputElement>(null);
  const [refused, setRefused] = useState<Refused | null>(null);
  const [busy, setBusy] = useState(false);
  const submit = async (event: TargetedEvent<HTMLFormElement>): Promise<void> => {
    event.preventDefault();
    const input = field.current as HTMLInputElement;
    const credential = input.value.trim();
    input.value = "";
    setBusy(true);
    setRefused(null);
    try {
      entered(await signIn(credential));
    } catch (error) {
      if (error instanceof Refused) setRefused(error);
      input.focus();
    } finally {
      setBusy(false);
    }
  };
  return (
    <main class="sign-in" id="main">
      <h1>leased</h1>
      {said ? <p class="notice warn">{said}</p> : null}
      <form class="card form" onSubmit={(event) => void submit(event)} aria-busy={busy}>
        <label class="field">
          API key or token
          <input ref={field} type="password" required autocomplete="off" autofocus spellcheck={false} />
          <span class="hint">
            An admin of the project makes one: <code>leased keys create</code>
          </span>
        </label>
        {refused ? <Refusal refused={refused} /> : null}
        <div class="buttons left-side">
          <button type="submit" class="main" disabled={busy}>
            Sign in
          </button>
        </div>
      </form>
    </main>
  );
}
