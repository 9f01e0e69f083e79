/** The rounds of a campaign from left to right, the last ones first in sight. */

import { useEffect, useRef } from "preact/hooks";
import type { RoundOf, Rounds } from "./service.ts";
import { say } from "./texts.ts";

const MOST_SHOWN = 200;

interface TimelineProps {
  readonly rounds: Rounds;
  readonly shown: number | undefined;
  readonly latest: number | undefined;
  /** Whether the campaign takes no reports any more. */
  readonly over: boolean;
  readonly onRound: (round: number) => void;
}

export function Timeline({
  rounds: { rounds, minimum_reports: minimum },
  shown,
  latest,
  over,
  onRound,
}: TimelineProps) {
  const list = useRef<HTMLOListElement>(null);
  const several = rounds.slice(-MOST_SHOWN);
  const most = Math.max(1, ...several.map((row) => row.reports));
  useEffect(() => {
    list.current!.scrollLeft = list.current!.scrollWidth;
  }, [several.length]);
  return (
    <section class="card stack-tight">
      <h2>{say.timeline}</h2>
      <ol class="timeline" ref={list} tabIndex={0} aria-label={say.timeline}>
        {several.map((row) => (
          <li key={row.round} class={row.round === shown ? "timeline-shown" : ""}>
            <span class="timeline-bar" aria-hidden="true">
              <i style={{ height: `${(100 * row.reports) / most}%` }} class={row.estimated ? "" : "timeline-waits"} />
            </span>
            {row.estimated ? (
              <button
                type="button"
                aria-pressed={row.round === shown}
                aria-label={`${say.showRound}: ${row.round}`}
                onClick={() => onRound(row.round)}
              >
                {row.round}
              </button>
            ) : (
              <span class="timeline-number">{row.round}</span>
            )}
            <span class="small numbers">{say.timelineReports(row.reports)}</span>
            <span class="small soft">{standing(row, minimum, latest, over)}</span>
            <time class="small soft">{timeOf(row.opened_at)}</time>
          </li>
        ))}
      </ol>
    </section>
  );
}

function standing(row: RoundOf, minimum: number, latest: number | undefined, over: boolean): string {
  if (row.estimated) return row.round === latest ? `${say.timelineEstimated}, ${say.latest}` : say.timelineEstimated;
  if (row.given_up) return say.timelineGivenUp;
  if (row.closed_at === null && !over) return say.timelineOpen;
  return row.reports < minimum ? say.timelineSmall : say.timelineClosed;
}

function timeOf(seconds: number): string {
  return new Date(1000 * seconds).toLocaleString(undefined, { dateStyle: "short", timeStyle: "short" });
}
