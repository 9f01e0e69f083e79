/** Everything that was ever sent from this browser, what it cost, and how to forget it. */

import { odds } from "@geoveil/client";
import { useEffect, useRef, useState } from "preact/hooks";
import { cost, language, left, number } from "../texts/language.ts";
import type { Charge, Ledger, Limits } from "./device.ts";
import { say } from "./texts.ts";

const DAY_MS = 86_400_000;
const NEARBY_KM = 0.2;
const words = say.ledger;

interface LedgerProps {
  readonly ledger: Ledger;
  readonly limits: Limits;
  readonly host: string;
  readonly erase: () => Promise<void>;
  /** Whether this campaign counts reports with tickets only. */
  readonly tickets: boolean;
}

export function LedgerView({ ledger: { standing, history }, limits, host, erase, tickets }: LedgerProps) {
  const { reports, spent, operator, budgetLeftPerKm } = standing;
  const { guessedOf100 } = odds(spent, NEARBY_KM);
  return (
    <section class="card stack" aria-labelledby="ledger">
      <h2 id="ledger">{words.title}</h2>
      <p class="soft">{words.where(host)}</p>
      {history.length ? <Charges history={history} /> : <p>{words.none}</p>}
      <p id="budget">
        {words.left(left(budgetLeftPerKm), left(limits.budgetPerKm))} {words.operator(cost(operator.epsilonPerKm))}
      </p>
      {reports > 1 && <p>{words.together(number(reports, 6), guessedOf100)}</p>}
      {history.length > 0 && <Erase erase={erase} tickets={tickets} />}
    </section>
  );
}

function Charges({ history }: { history: readonly Charge[] }) {
  return (
    <div class="scrolls" tabIndex={0} role="group" aria-label={words.title}>
      <table class="numbers">
        <thead>
          <tr>
            <th scope="col">{words.day}</th>
            <th scope="col">{words.campaign}</th>
            <th scope="col">{words.cell}</th>
            <th scope="col">{words.cost}</th>
            <th scope="col">{words.state}</th>
          </tr>
        </thead>
        <tbody>
          {[...history].reverse().map((charge) => (
            <tr key={charge.report}>
              <td>
                {new Date(charge.day * DAY_MS).toLocaleDateString(language, { timeZone: "UTC", dateStyle: "medium" })}
              </td>
              <td>{charge.campaign.slice(charge.campaign.lastIndexOf("/") + 1)}</td>
              <td>{charge.to ? `${charge.cell} → ${charge.to.cell}` : charge.cell}</td>
              <td>{cost(charge.epsilonPerKm)}</td>
              <td>{words.states[charge.state]}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

/** Asked twice: what it means stands between. */
function Erase({ erase, tickets }: Pick<LedgerProps, "erase" | "tickets">) {
  const [open, setOpen] = useState<boolean>();
  const [button, title] = [useRef<HTMLButtonElement>(null), useRef<HTMLHeadingElement>(null)];
  useEffect(() => {
    if (open !== undefined) (button.current ?? title.current)?.focus(); // what was pressed is gone
  }, [open]);
  if (!open) {
    return (
      <button type="button" id="erase" ref={button} onClick={() => setOpen(true)}>
        {words.erase}
      </button>
    );
  }
  return (
    <div class="notice notice-warm stack" role="group" aria-labelledby="erase-title">
      <h3 id="erase-title" ref={title} tabIndex={-1}>
        {words.eraseTitle}
      </h3>
      <ul class="list">
        {words.eraseMeans.map((line) => (
          <li>{line}</li>
        ))}
        {tickets && <li>{say.invitation.erase}</li>}
      </ul>
      <div class="row">
        <button type="button" class="quiet" id="erase-now" onClick={() => void erase()}>
          {words.eraseNow}
        </button>
        <button type="button" onClick={() => setOpen(false)}>
          {words.keep}
        </button>
      </div>
    </div>
  );
}
