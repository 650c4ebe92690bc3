// Where one is in the dashboard. Keys stand after the `#`, which browsers send to nobody.

import { useEffect, useState } from "preact/hooks";

export type View = "locks" | "key" | "overview" | "denials" | "rules" | "store";

export interface Place {
  view: View;
  key: string;
}

const VIEWS: readonly View[] = ["locks", "key", "overview", "denials", "rules", "store"];

export const linkTo = (key: string): string => `#/key/${encodeURIComponent(key)}`;

export const open = (link: string): void => {
  location.hash = link;
};

export function placeOf(hash: string): Place {
  const [, name = "", ...rest] = hash.split("/");
  const view = VIEWS.find((one) => one === name) ?? "locks";
  try {
    return { view, key: decodeURIComponent(rest.join("/")) };
  } catch {
    return { view: "locks", key: "" };
  }
}

export function usePlace(): Place {
  const [place, setPlace] = useState(() => placeOf(location.hash));
  useEffect(() => {
    const changed = (): void => setPlace(placeOf(location.hash));
    addEventListener("hashchange", changed);
    return () => removeEventListener("hashchange", changed);
  }, []);
  return place;
}
