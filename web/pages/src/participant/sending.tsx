/** What leaves the browser, what it costs, the one button, and the receipt. */

import { useEffect, useRef } from "preact/hooks";
import { cost, degrees, left, number } from "../texts/language.ts";
import { HOST } from "./campaign.ts";
import type { Failure, Ledger, Limits, Rule, Sent } from "./device.ts";
import { Invitation, type Invited } from "./invitation.tsx";
import { say } from "./texts.ts";

const words = say.send;

/** How far a report has come. */
export type Stage = "checking" | "open" | "sending" | "made" | "stuck";

interface SendingProps {
  readonly stage: Stage;
  readonly rule: Rule | undefined;
  readonly ledger: Ledger | undefined;
  readonly limits: Limits;
  readonly placed: boolean;
  readonly failure: Failure | undefined;
  readonly send: () => void;
  /** Undefined where nobody needs an invitation. */
  readonly invited: Invited | undefined;
  readonly invite: (typed: string) => void;
}

export function Sending({ stage, rule, ledger, limits, placed, failure, send, invited, invite }: SendingProps) {
  const standing = ledger?.standing;
  const barred = invited?.kept === false;
  return (
    <section class="card stack" id="act" aria-labelledby="send">
      <h2 id="send">{words.title}</h2>
      {rule && (
        <>
          <h3>{words.leaves}</h3>
          <ul class="list">
            {(rule.trips ? say.trip : rule.onGrid ? words : say.listed.send)
              .leavesList(number(rule.east.length, 6))
              .map((line) => (
                <li>{line}</li>
              ))}
            {rule.slot && <li id="slot">{words.slot(rule.slot.name, number(rule.slot.of), rule.slot.zone)}</li>}
            {invited && <li id="ticket">{say.invitation.leaves}</li>}
          </ul>
          <p>{words.notSent}</p>
        </>
      )}
      {rule && standing && (
        <p>
          {words.cost(cost(rule.cost.epsilonPerKm), left(standing.budgetLeftPerKm), left(limits.budgetPerKm))}{" "}
          {rule.trips && `${say.trip.twice} `}
          {words.operator(HOST, cost(standing.operator.epsilonPerKm))}
        </p>
      )}
      {invited && <Invitation {...{ ...invited, invite }} />}
      {failure && <Failed failure={failure} />}
      <div class="row">
        <button
          type="button"
          class="primary"
          id="send-now"
          disabled={stage !== "open" || !placed || barred}
          aria-describedby="send-status"
          onClick={send}
        >
          {stage === "sending" ? words.sending : words.button}
        </button>
      </div>
      <p id="send-status" role="status" class="soft small">
        {stage === "open" && barred ? say.invitation.first : statusOf(stage, placed, rule?.trips ?? false)}
      </p>
    </section>
  );
}

function statusOf(stage: Stage, placed: boolean, trips: boolean): string {
  if (stage === "checking") return words.checking;
  if (stage === "open") return placed ? "" : trips ? say.trip.ready : words.ready;
  return stage === "sending" ? words.sending : "";
}

/** Problems of a campaign or a report that the page has words for. */
const PROBLEM_WORDS = new Map([
  ["campaign-paused", say.paused],
  ["campaign-preparing", say.preparing],
  ["campaign-finished", say.finished],
  ["campaign-ended", say.ended],
  ["unknown-campaign", say.unknown],
  ["mechanism-expired", words.late],
  ["needed", say.invitation.first],
  ["unknown-invitation", say.invitation.unknown],
  ["invitation-used", say.invitation.used],
]);
/** Reasons whose detail is a name for whoever looks into it; others are told in English, for programmers. */
const NAMED = new Set<string>(["document", "answer", "problem", "invitation", "ticket", "waiting", "fault"]);

/** Why nothing was reported, in the reader's words; what device or service called it stands in brackets. */
export function Failed({ failure: { reason, detail, sent } }: { failure: Failure }) {
  const problemWords = reason === "problem" || reason === "invitation" ? PROBLEM_WORDS.get(detail) : undefined;
  const title = reason === "waiting" ? words.waiting : sent ? words.refusedSent : words.refused;
  return (
    <div class="notice notice-warm" role="alert" data-reason={reason}>
      <strong>{title}:</strong> {problemWords ?? `${say.reasons[reason]}.`}
      {detail && !problemWords && NAMED.has(reason) && (
        <span class="soft" lang="en">
          {" "}
          ({detail})
        </span>
      )}
      {reason === "accuracy" && ` ${words.coarse}`}
      {(reason === "promise" || reason === "budget") && ` ${words.limits}`}
    </div>
  );
}

interface ReportProps {
  readonly charge: Sent;
  /** That of now, where it is known. */
  readonly rule: Rule | undefined;
  /** How many sendings this page has seen the end of: after each, the reader is taken here. */
  readonly settled: number;
  /** Whether the list does not hold it. */
  readonly forgotten: boolean;
  readonly busy: boolean;
  readonly flush: () => void;
  /** Whether the campaign is over, so that nothing can be sent again. */
  readonly over: boolean;
  /** Whether a ticket went with it. */
  readonly tickets: boolean;
}

/** The report that was made, now or on an earlier visit. */
export function Report({ charge, rule, settled, forgotten, busy, flush, over, tickets }: ReportProps) {
  const title = useRef<HTMLHeadingElement>(null);
  useEffect(() => {
    if (!settled) return;
    title.current?.focus();
    performance.mark("receipt shown");
  }, [settled]);
  const receipt = rule?.onGrid ? say.receipt : { ...say.receipt, ...say.listed.receipt };
  const counted = charge.state === "acknowledged";
  const waits = charge.state === "sent";
  return (
    <section class={`card stack receipt${counted ? " receipt-good" : ""}`} id="act" aria-labelledby="receipt">
      <h2 id="receipt" ref={title} tabIndex={-1}>
        {counted ? receipt.title : waits ? words.waiting : words.refusedSent}
      </h2>
      <p class="lead">
        {sentInWords(charge, receipt)} {tickets && say.invitation.sent}
      </p>
      <p>
        {charge.to
          ? say.trip.where(degrees(charge.lat, charge.lng), degrees(charge.to.lat, charge.to.lng))
          : receipt.where(degrees(charge.lat, charge.lng))}
      </p>
      {waits && (over || forgotten) && <p>{over ? words.unconfirmed : words.lost}</p>}
      {waits && !over && !forgotten && (
        <>
          <p>{say.reasons.waiting}.</p>
          <button type="button" class="primary" id="send-again" disabled={busy} onClick={flush}>
            {busy ? words.sending : words.again}
          </button>
        </>
      )}
      {charge.state === "refused" && (
        <p>
          {PROBLEM_WORDS.get(charge.problem) ?? (
            <>
              {say.reasons.problem}.{" "}
              <span class="soft" lang="en">
                ({charge.problem})
              </span>
            </>
          )}
        </p>
      )}
      {forgotten ? <p class="notice notice-warm">{receipt.forgotten}</p> : counted && <p>{receipt.once}</p>}
      <dl class="facts small soft">
        <dt>{receipt.report}</dt>
        <dd class="digits">{charge.report}</dd>
        <dt>{say.numbers.round}</dt>
        <dd>{charge.round}</dd>
      </dl>
    </section>
  );
}

/** What was sent: a square or a place, with its slot where there is one, or the two of a trip. */
function sentInWords({ cell, slot, to }: Sent, receipt: typeof say.receipt): string {
  const sent = number(cell, 6);
  if (to) {
    const ended = number(to.cell, 6);
    return slot === undefined ? say.trip.cells(sent, ended) : say.trip.cellsAndSlot(sent, ended, String(slot));
  }
  return slot === undefined ? receipt.cell(sent) : receipt.cellAndSlot(sent, String(slot));
}
