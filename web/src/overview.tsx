// The last hour in plots, and what of the budgets is left.

import type { JSX } from "preact";

import { get } from "./api";
import { Refusal, usePolled } from "./parts";
import { Plot, type Series } from "./plot";
import { span } from "./text";
import type { Overview, Percentiles, Sample } from "./types";

export function OverviewView(): JSX.Element {
  const { value, refused } = usePolled(() => get<Overview>("/v1/overview"), 10, []);
  return (
    <section class="page wide-page" aria-labelledby="view-title">
      <h1 id="view-title">The last hour</h1>
      <p class="quiet">What this process of the service counted, each {span(value?.intervalMs ?? 10_000)}.</p>
      {refused ? <Refusal refused={refused} /> : null}
      {value && !value.samples.length ? <p class="quiet">Nothing was counted yet; the first figures come in a few seconds.</p> : null}
      {value?.samples.length ? <Plots samples={value.samples} /> : null}
      {value ? <Limits limits={value.limits} /> : null}
    </section>
  );
}

const whole = (value: number): string => (Number.isInteger(value) ? value.toLocaleString("en") : value.toFixed(1));

function Plots({ samples }: { samples: readonly Sample[] }): JSX.Element {
  const at = samples.map((sample) => sample.at);
  const one = (name: string, of: (sample: Sample) => number | null): Series => ({ name, values: samples.map(of) });
  const three = (of: (sample: Sample) => Percentiles | null): Series[] => [
    one("median", (sample) => of(sample)?.p50 ?? null),
    one("95 %", (sample) => of(sample)?.p95 ?? null),
    one("99 %", (sample) => of(sample)?.p99 ?? null),
  ];
  return (
    <div class="plots">
      <Plot title="Held and waiting" at={at} series={[one("held", (s) => s.held), one("waiting", (s) => s.waiting)]} format={whole} />
      <Plot title="Taken and asked in vain" at={at} series={[one("taken", (s) => s.acquired), one("in vain", (s) => s.contended)]} format={whole} />
      <Plot title="How long claims waited" at={at} series={three((sample) => sample.waitMs)} format={span} least={10} />
      <Plot title="How long keys were held" at={at} series={three((sample) => sample.holdMs)} format={span} least={10} />
      <Plot
        title="Refused and forced"
        at={at}
        series={[
          one("denied", (s) => s.denied),
          one("over a limit", (s) => s.limited),
          one("could not work", (s) => s.rejected),
          one("forced", (s) => s.forced),
        ]}
        format={whole}
        bars
      />
    </div>
  );
}

const TITLES: Record<string, string> = {
  projectRequests: "Requests of the project",
  memberAttempts: "Attempts of each member to acquire",
  failedLogins: "Failed sign-ins of each address",
  eventStreams: "Streams of events",
  waiters: "Claims that wait",
  waitersEach: "Claims of one principal that wait",
};

function Limits({ limits }: { limits: Record<string, unknown> }): JSX.Element {
  const known = Object.entries(limits).flatMap(([name, value]) => (value === null ? [] : [{ name, ...read(value) }]));
  return (
    <>
      <h2>Limits</h2>
      {known.length ? null : <p class="quiet">No budget is in force here: nobody is asked for credentials.</p>}
      <dl class="facts wide">
        {known.map(({ name, most, left, per }) => (
          <>
            <dt>{TITLES[name] ?? name}</dt>
            <dd>
              {left !== null && most ? (
                <meter min={0} max={most} low={most / 5} optimum={most} value={left} aria-label={`${TITLES[name] ?? name}: what is left`} />
              ) : null}
              {left === null ? whole(most) : `${whole(left)} of ${whole(most)} left`}
              {per ? <span class="aside"> {per}</span> : null}
            </dd>
          </>
        ))}
      </dl>
    </>
  );
}

/** A budget in whichever shape it is told: a number alone, or how many in which time, and how many are left. */
function read(value: unknown): { most: number; left: number | null; per: string } {
  if (typeof value !== "object" || value === null) return { most: Number(value), left: null, per: "" };
  const found = value as Record<string, unknown>;
  const number = (...names: string[]): number | null => {
    const name = names.find((one) => typeof found[one] === "number");
    return name === undefined ? null : (found[name] as number);
  };
  const time = number("perMs", "spanMs", "intervalMs", "windowMs");
  return {
    most: number("most", "amount", "limit", "budget", "total", "max") ?? 0,
    left: number("left", "remaining"),
    per: time === null ? "" : `in ${span(time)}`,
  };
}
