// From which machine a key is held, as the library says of itself in the metadata of each lease. It believes nothing of it.

export interface Machine {
  /** Host and process: what one logs in to, and looks for there. */
  place: string;
  program: string | null;
}

/** What a holder, or whoever waits, says of itself; null where that is nothing. Others may write there what they like. */
export function machineOf(metadata: Record<string, unknown>): Machine | null {
  const { host, pid, program } = metadata;
  if (typeof host !== "string" || !host) return null;
  return {
    place: typeof pid === "number" ? `${host}:${pid}` : host,
    program: typeof program === "string" && program ? program : null,
  };
}

/** The rest of the metadata: what is not told as the machine. */
export function others(metadata: Record<string, unknown>): [string, unknown][] {
  const pairs = Object.entries(metadata);
  if (!machineOf(metadata)) return pairs;
  const told = (name: string, value: unknown): boolean =>
    name === "host" || (name === "pid" && typeof value === "number") || (name === "program" && typeof value === "string");
  return pairs.filter(([name, value]) => !told(name, value));
}

/** Who holds it beside the machine: without credentials the holder is named `program@host:pid`, which says both. */
export function holderBeside(heldBy: string | null, machine: Machine | null): string | null {
  const end = machine && `@${machine.place}`;
  return heldBy && end && heldBy.endsWith(end) ? heldBy.slice(0, -end.length) : heldBy;
}

/** Whether a part of a name, in small letters, is in what a holder says of its machine. */
export function isOn(metadata: Record<string, unknown>, part: string): boolean {
  const machine = machineOf(metadata);
  return machine !== null && (machine.place.toLowerCase().includes(part) || !!machine.program?.toLowerCase().includes(part));
}
