// What the keys of the keyboard do.

import type { JSX } from "preact";

import { Dialog, StageMark } from "./parts";
import type { Stage } from "./rows";

const KEYS: readonly [string, string][] = [
  ["/", "filter the keys"],
  ["↑ ↓", "go from key to key"],
  ["Page ↑ ↓, Home, End", "go far"],
  ["Enter", "open the key"],
  ["Escape", "back; empty the filter; close a dialog"],
  ["1 … 5", "the views, in the order of the menu"],
  ["f", "release the open key by force"],
  ["m", "hold the open key for maintenance"],
  ["?", "this help"],
];

const STAGES: readonly [Stage, string][] = [
  ["held", "somebody holds it"],
  ["renewing", "its holder was seen to renew it"],
  ["risk", "less than a third is left: who renews would have done so by now"],
  ["maintenance", "held on purpose, with a reason"],
  ["closed", "nobody holds it, and nobody gets it for a while"],
  ["lost", "it ended without a release"],
];

export function Help({ close }: { close: () => void }): JSX.Element {
  return (
    <Dialog title="Keyboard and signs" close={close}>
      <dl class="facts keys">
        {KEYS.map(([key, what]) => (
          <>
            <dt>
              <kbd>{key}</kbd>
            </dt>
            <dd>{what}</dd>
          </>
        ))}
      </dl>
      <h3>States</h3>
      <dl class="facts keys">
        {STAGES.map(([stage, what]) => (
          <>
            <dt>
              <StageMark stage={stage} />
            </dt>
            <dd>{what}</dd>
          </>
        ))}
      </dl>
      <div class="buttons">
        <button type="button" class="main" onClick={close} autofocus>
          Close
        </button>
      </div>
    </Dialog>
  );
}
