/** Districts that an operator drew: the share of each with an interval of its own, on the map and as a table. */

import type { ComponentChildren } from "preact";
import { useEffect, useMemo, useState } from "preact/hooks";
import type { TangentPlane } from "../../../sdk/src/plane.ts";
import { number, percent } from "../texts/language.ts";
import { type Backdrop, DISTRICT, pathOf } from "./backdrop.ts";
import type { Area } from "./canvas.ts";
import { colour, unknownColour } from "./colours.ts";
import { say } from "./district_texts.ts";
import { onScale } from "./estimate.ts";
import type { RegionShares } from "./region.tsx";

/** Of a share: half the width of its 95 % interval where the standard error is half of it. */
const KNOWN_WITHIN = 0.98;

export interface Districts {
  readonly features: Backdrop["features"];
  readonly shares: RegionShares | undefined;
  /** Why there are no shares. */
  readonly problem: ComponentChildren;
  readonly marked: number | undefined;
  readonly mark: (district: number | undefined) => void;
}

/** The districts of a backdrop, and what the service says of them once they are shown. */
export function useDistricts(
  backdrop: Backdrop | undefined,
  showing: boolean,
  ask: (districts: object) => Promise<RegionShares>,
  inWords: (error: unknown) => ComponentChildren,
): Districts {
  const features = useMemo(() => (backdrop?.features ?? []).filter(isDistrict), [backdrop]);
  const [shares, setShares] = useState<RegionShares>();
  const [problem, setProblem] = useState<ComponentChildren>("");
  const [marked, mark] = useState<number>();
  useEffect(() => {
    setShares(undefined);
    setProblem("");
    if (!showing || !features.length) return;
    let current = true;
    ask({ type: "FeatureCollection", features: features.map((feature) => ({ type: "Feature", ...feature })) }).then(
      (answer) => {
        if (!current) return;
        // of a published map they come in the order of its districts, which may be others by now
        const same = answer.regions.length === features.length;
        if (same && answer.regions.every(({ name }, at) => name === features[at]!.properties.name)) setShares(answer);
        else setProblem(say.others);
      },
      (error: unknown) => current && setProblem(inWords(error)),
    );
    return () => {
      current = false;
    };
  }, [features, showing]);
  return { features, shares, problem, marked, mark };
}

export function isDistrict({ properties }: Backdrop["features"][number]): boolean {
  return properties.kind === DISTRICT;
}

/** Share for each cell of its area, of the densest district. */
export function densest({ regions }: RegionShares): number {
  return Math.max(0, ...regions.map(density));
}

function density({ share, area_cells: cells }: RegionShares["regions"][number]): number {
  return cells > 0 ? share / cells : 0;
}

/** As the map paints them. */
export function areasOf({ features, shares }: Districts, plane: TangentPlane, dark: boolean): readonly Area[] {
  if (!shares) return [];
  const most = densest(shares);
  return features.map(({ geometry }, at) => {
    const region = shares.regions[at]!;
    const known = region.high - region.low <= 2 * KNOWN_WITHIN * region.share;
    const painted = known ? colour(onScale(density(region), most), dark) : unknownColour(dark);
    return { path: pathOf(geometry, plane), colour: painted };
  });
}

/** What is said of the district that is marked. */
export function districtInWords({ shares, marked }: Districts): string {
  const region = marked === undefined ? undefined : shares?.regions[marked];
  if (!region) return say.hover;
  return say.between(region.name, percent(region.share), percent(region.low), percent(region.high));
}

export function DistrictTable({ districts }: { districts: Districts }) {
  const { shares, problem, marked, mark } = districts;
  if (!shares) return <p role="status">{problem || say.wait}</p>;
  const { level, regions, left_out: leftOut, counted_twice: twice } = shares;
  return (
    <div class="stack-tight" id="districts">
      <div class="scrolls" tabIndex={0} role="region" aria-label={say.table}>
        <table class="numbers">
          <caption class="hidden">{say.table}</caption>
          <thead>
            <tr>
              <th scope="col">{say.district}</th>
              <th scope="col">{say.share}</th>
              <th scope="col">{say.interval(`${number(100 * level)} %`)}</th>
              <th scope="col">{say.cells}</th>
            </tr>
          </thead>
          <tbody>
            {regions.map(({ name, share, low, high, area_cells: cells }, at) => (
              <tr key={at} class={at === marked ? "marked" : ""} onMouseEnter={() => mark(at)}>
                <th scope="row">
                  <button
                    type="button"
                    class="in-table"
                    aria-pressed={at === marked}
                    onFocus={() => mark(at)}
                    onClick={() => mark(at)}
                  >
                    {name}
                  </button>
                </th>
                <td class="unbroken">{percent(share)}</td>
                <td>{say.range(percent(low), percent(high))}</td>
                <td>{number(cells, 3)}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      {leftOut > 0.0005 && <p class="small">{say.leftOut(percent(leftOut))}</p>}
      {twice > 0.0005 && <p class="small">{say.twice(percent(twice))}</p>}
    </div>
  );
}
