// What the service answers, as far as the dashboard reads it. Times are whole milliseconds.

export interface Status {
  key: string;
  state: "free" | "held" | "closed";
  held: boolean;
  owner: string | null;
  heldBy: string | null;
  expiresInMs: number | null;
  expiresAt: string | null;
  freeInMs: number | null;
  freeAt: string | null;
  fencingToken: number | null;
  acquiredAt: string | null;
  metadata: Record<string, unknown>;
  waiters: number | null;
}

export interface Session {
  mode: "local" | "credentials";
  signedIn: boolean;
  principal: { kind: string; name: string; role: string | null; project: string } | null;
  may: { list: boolean; force: boolean; manage: boolean; hold: boolean };
  acts: boolean;
  csrfToken: string | null;
  version: string;
  store: string | null;
  heartbeatMs: number;
}

export interface Granted {
  acquired: boolean;
  token?: string;
  fencingToken?: number;
  leftMs?: number;
  holder?: Status | null;
}

export interface Waiter {
  heldBy: string | null;
  owner: string | null;
  metadata: Record<string, unknown>;
  waitedMs: number;
  leftMs: number | null;
}

export interface PastHold {
  heldBy: string | null;
  owner: string | null;
  fencingToken: number;
  acquiredAt: string;
  endedAt: string | null;
  end: "released" | "force_released" | "expired" | "abandoned" | null;
  waitedMs: number | null;
  reason: string | null;
}

export interface History {
  kept: boolean;
  holds: PastHold[];
}

export interface ContentionOf {
  intervalMs: number;
  samples: { at: string; contended: number; waiting: number }[];
}

export interface Percentiles {
  p50: number;
  p95: number;
  p99: number;
}

export interface Sample {
  at: string;
  held: number | null;
  waiting: number;
  acquired: number;
  contended: number;
  rejected: number;
  denied: number;
  limited: number;
  forced: number;
  waitMs: Percentiles | null;
  holdMs: Percentiles | null;
}

export interface Overview {
  intervalMs: number;
  samples: Sample[];
  limits: Record<string, unknown>;
}

export interface AuditLine {
  number: number;
  at: string;
  actor: string;
  action: string;
  target: string;
  detail: string;
  count: number;
}

export interface RuleSet {
  installed: boolean;
  ruleSet?: { name: string };
  rules?: { lock?: Record<string, string> };
  installedAt?: string;
  installedBy?: string;
}

export type Verdicts = Record<string, { allowed: boolean; reason: string }>;

export interface Capabilities {
  version: string;
  store: string | null;
  assurance: {
    exclusive: string;
    earlyLoss: boolean;
    durable: string;
    takeover: string;
    fence: string;
    clockMargin: number;
    notes: string[];
    known: boolean;
  };
  policies: {
    keys: "strict" | "any";
    maxKeyLength: number;
    minTtlMs: number;
    maxTtlMs: number;
    maxHoldAtLeastMs: number;
    maxLockDelayMs: number;
    maxWaitSliceMs: number;
    maxWaiters: number;
  };
  authentication: boolean;
  sharing: { credentials: string; budgets: string; requestIds: string };
}

// One event of the stream: `event` says which, the rest is there where it is known.
export interface LockEvent {
  event: string;
  key?: string;
  by?: string | null;
  heldBy?: string | null;
  owner?: string | null;
  fencingToken?: number;
  ttlMs?: number;
  leftMs?: number;
  lostReason?: string;
  waiters?: number;
  action?: string;
  count?: number;
}
