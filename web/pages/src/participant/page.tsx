/** The page at a campaign's link: consequences first, then the map, one button, and everything ever sent. */

import { useEffect, useRef, useState } from "preact/hooks";
import type { Backdrop } from "../map/backdrop.ts";
import { announce, asTyped, cost, distance, language, number } from "../texts/language.ts";
import {
  type Campaign,
  fetchBackdrop,
  fetchCampaign,
  HOST,
  invitationInAddress,
  isLimit,
  keepLimits,
  LINK,
  type Missing,
  recallLimits,
  takeInvitationOut,
} from "./campaign.ts";
import { Choice } from "./choice.tsx";
import {
  type Cloud,
  DeviceProxy,
  type Failure,
  type Fix,
  type Ledger,
  type Limits,
  type Receipt,
  type Rule,
  type Sent,
  sentOf,
} from "./device.ts";
import type { Invited } from "./invitation.tsx";
import { LedgerView } from "./ledger.tsx";
import { PlaceChoice } from "./place.tsx";
import { Reveals } from "./reveals.tsx";
import { Failed, Report, Sending, type Stage } from "./sending.tsx";
import { say } from "./texts.ts";

/** Until a campaign that is being prepared is looked at again. */
const PREPARING_MS = 5000;
/** Why a promise cannot be had, where another one may. */
const MAY_CHOOSE = new Set<string>(["promise", "level"]);
/** Why there was no invitation, or no ticket for it, until one is kept. */
const OF_INVITATIONS = new Set<string>(["invitation", "fault"]);

export function Page() {
  const [campaign, setCampaign] = useState<Campaign | Missing>();
  const [attempt, setAttempt] = useState(0);
  const [trips, setTrips] = useState<boolean>(); // as the rule says
  const outcome = useRef<HTMLHeadingElement & HTMLParagraphElement>(null);
  const retrying = useRef(false);
  useEffect(() => {
    announce(say.loading);
    void fetchCampaign().then((answer) => {
      setCampaign(answer);
      announce(typeof answer === "string" ? say[answer] : answer.name);
    });
  }, [attempt]);
  useEffect(() => {
    if (retrying.current) outcome.current?.focus(); // whoever asked again is taken to what comes of it
    if (typeof campaign === "object") retrying.current = false;
  }, [campaign]);
  const again = (): void => {
    retrying.current = true;
    setCampaign(undefined);
    setAttempt(attempt + 1);
  };
  const waits = typeof campaign === "object" && campaign.state === "preparing";
  useEffect(() => {
    if (!waits) return;
    const again = setTimeout(() => setAttempt(attempt + 1), PREPARING_MS);
    return () => clearTimeout(again);
  }, [campaign]);
  if (campaign === undefined) {
    return (
      <main class="page">
        <p role="status" class="soft" ref={outcome} tabIndex={-1}>
          {say.loading}
        </p>
      </main>
    );
  }
  if (typeof campaign === "string") {
    return (
      <main class="page stack">
        <h1 ref={outcome} tabIndex={-1}>
          {say[campaign]}
        </h1>
        {campaign === "unreachable" && (
          <button type="button" onClick={again}>
            {say.tryAgain}
          </button>
        )}
      </main>
    );
  }
  return (
    <>
      {!campaign.over && (
        <a class="skip" href="#act">
          {say.skip}
        </a>
      )}
      <header class="page head stack">
        <p class="soft small">
          {say.by(HOST)} · {say.counted(campaign.reports)}
        </p>
        <h1 ref={outcome} tabIndex={-1}>
          {campaign.name}
        </h1>
        {!campaign.over && <p class="lead">{(trips ?? campaign.trips) ? say.trip.lead : say.lead}</p>}
        {!campaign.over && campaign.tickets && <p id="one">{say.invitation.one}</p>}
        {campaign.state === "paused" && <p class="notice notice-warm">{say.paused}</p>}
        {campaign.over && <p class="notice notice-warm">{say[campaign.state as "ended" | "finished"]}</p>}
        {waits && (
          <p class="notice" role="status">
            {say.preparing}
          </p>
        )}
      </header>
      {!waits && <Participation campaign={campaign} onTrips={setTrips} />}
    </>
  );
}

interface ParticipationProps {
  readonly campaign: Campaign;
  readonly onTrips: (trips: boolean) => void;
}

/**
 * All that depends on the device: it is opened again when the limits change, and when the ledger is deleted. Where
 * the campaign is over, what was sent is left.
 */
function Participation({ campaign: { over, tickets }, onTrips }: ParticipationProps) {
  const device = useRef<DeviceProxy | undefined>(undefined);
  const [limits, setLimits] = useState(recallLimits);
  const [chosen, setChosen] = useState<number>();
  const [stage, setStage] = useState<Stage>("checking");
  const [rule, setRule] = useState<Rule>();
  const [checked, setChecked] = useState(false);
  const [backdrop, setBackdrop] = useState<Backdrop>();
  const [ledger, setLedger] = useState<Ledger>();
  const [failure, setFailure] = useState<Failure>();
  const [fix, setFix] = useState<Fix>();
  const [end, setEnd] = useState<Fix>();
  const [report, setReport] = useState<Sent>();
  const [invited, setInvited] = useState<Invited>({ kept: false, wrong: false });
  const [settled, setSettled] = useState(0);
  const underWay = useRef(false);
  const erasures = useRef(0);
  /** Whether the list does not hold what was made: it was deleted while that was on its way. */
  const [forgotten, setForgotten] = useState(false);
  const [erasure, setErasure] = useState("");
  const [opened, setOpened] = useState(0);
  /** Where it is said what happens next. */
  const next = useRef<HTMLDivElement>(null);
  const retrying = useRef(false);

  const readLedger = async (): Promise<void> => {
    setLedger(await device.current!.call("ledger").catch(() => undefined));
  };
  /** Keep a code, if it is one; whether that could be told: what did not work says why, and may work later. */
  const invite = async (typed: string): Promise<boolean> => {
    const kept = await device.current!.call("invite", LINK, typed).catch((problem: Failure) => {
      setFailure((before) => before ?? problem);
    });
    if (kept && document.activeElement?.closest("#invitation")) next.current?.focus(); // the field goes
    if (kept) setFailure((before) => (before && OF_INVITATIONS.has(before.reason) ? undefined : before));
    setInvited({ kept: kept === true, wrong: typed !== "" && kept === false });
    return kept !== undefined;
  };
  /** Where no other report can come of it: one that is on its way has its ticket in the list. */
  const forgetInvitation = async (done: unknown): Promise<void> => {
    if (tickets && done) await device.current!.call("forget", LINK).catch(() => undefined);
  };
  useEffect(() => {
    const proxy = new DeviceProxy((newRule) => {
      performance.mark("rule read");
      setRule(newRule);
      onTrips(newRule.trips);
      setChecked(false);
    });
    device.current = proxy;
    setStage("checking");
    setFailure(undefined);
    setForgotten(false);
    const invited = tickets && !over ? invite(invitationInAddress()) : Promise.resolve(true);
    void invited.then((told) => told && takeInvitationOut()); // now that it is kept
    void invited.then(() => forgetInvitation(over));
    proxy
      .call("open", LINK, limits, chosen)
      .then(
        (offer) => {
          performance.mark("rule checked");
          setChecked(true);
          setReport(offer.earlier);
          if (offer.earlier && retrying.current) setSettled(settled + 1);
          retrying.current = false;
          setStage(offer.earlier ? "made" : "open");
          void invited.then(() => forgetInvitation(offer.earlier));
        },
        (problem: Failure) => {
          if (problem.reason === "budget")
            setChecked(true); // which is looked at last
          else if (!MAY_CHOOSE.has(problem.reason)) setRule(undefined); // of a rule that fails nothing is told
          setFailure(problem);
          setStage("stuck");
          void invited.then(() => forgetInvitation(problem.reason === "ended"));
        },
      )
      .then(readLedger);
    return () => proxy.stop();
  }, [limits, opened, chosen]);
  useEffect(() => {
    if (rule) void fetchBackdrop().then(setBackdrop); // there is a map to draw it on
  }, [rule === undefined]);
  const cloud = useCloud(device, fix, stage);
  const endCloud = useCloud(device, end, stage);

  /** What became of a report that was on its way: as the list has it, or else as its sending says. */
  const settle = async (fallback: Sent | undefined, problem?: Failure): Promise<void> => {
    setFix(undefined); // the place has done its work
    setEnd(undefined);
    const before = erasures.current;
    const { earlier: listed } = await device
      .current!.call("open", LINK, limits, chosen)
      .catch(() => ({ earlier: undefined }));
    const now = listed ?? fallback;
    setReport(now);
    setForgotten(!listed || erasures.current > before);
    if (!now) setFailure(problem);
    setSettled(settled + 1);
    setStage(now ? "made" : "stuck");
    underWay.current = false;
    await forgetInvitation(now);
    await readLedger();
  };
  const leave = (): void => {
    underWay.current = true;
    setStage("sending");
    setFailure(undefined);
    setForgotten(false);
    setErasure("");
  };
  const send = (): void => {
    performance.mark("sending");
    leave();
    const proxy = device.current!;
    const reported = async (): Promise<Receipt> => {
      const ticket = tickets ? await proxy.call("ticket", LINK) : undefined;
      return rule?.trips ? proxy.call("reportTrip", fix!, end!, ticket) : proxy.call("report", fix!, ticket);
    };
    reported().then(
      (receipt) => settle(sentOf(receipt)),
      async (problem: Failure) => {
        if (problem.sent || problem.reason === "fault")
          return settle(problem.receipt && sentOf(problem.receipt), problem);
        underWay.current = false;
        next.current?.focus(); // the button could not keep it while it was off
        if (problem.reason === "invitation") await invite(""); // it may be kept, as while the campaign is paused
        void forgetInvitation(problem.reason === "ended");
        setFailure(problem);
        setStage(problem.reason === "changed" ? "stuck" : "open");
      },
    );
  };
  const flush = (): void => {
    leave();
    const again = device.current!.call("flush").catch(() => undefined);
    void again.then((receipt) => settle(receipt ? sentOf(receipt) : report));
  };
  const erase = async (): Promise<void> => {
    const success = await device.current!.call("erase").then(
      () => true,
      () => false,
    );
    setErasure(success ? say.ledger.erased : say.ledger.notErased);
    if (!success) return;
    erasures.current++;
    if (underWay.current) return readLedger(); // what is on its way is told of when it has arrived
    setStage("checking");
    setSettled(0);
    setReport(undefined);
    setLedger(undefined);
    setOpened(opened + 1);
  };
  const again = (): void => {
    retrying.current = true;
    next.current?.focus(); // the button goes
    setOpened(opened + 1);
  };
  const promise = rule?.cost ?? report;
  const trips = rule?.trips ?? report?.to !== undefined;
  const shown = report && rule && report.mechanism === rule.id ? report : undefined;
  const open = stage === "open";
  const ended = over || failure?.reason === "ended";
  const shows = !ended || report !== undefined;
  const placed = fix !== undefined && (!trips || end !== undefined);
  return (
    <main class="page stack sections">
      {report && (
        <Report charge={report} {...{ rule, settled, forgotten, flush, over, tickets }} busy={stage === "sending"} />
      )}
      {rule && !report && !ended && (
        <Choice levels={rule.levels} {...{ chosen, limits, choose: setChosen }} open={stage !== "sending"} />
      )}
      {promise && shows && <Reveals {...{ promise, trips }} checked={checked} />}
      {rule && shows && (
        <PlaceChoice
          {...{ rule, backdrop, fix, cloud, open }}
          which={trips ? "begin" : "place"}
          sent={shown?.cell}
          choose={setFix}
        />
      )}
      {rule && trips && shows && (
        <PlaceChoice
          {...{ rule, backdrop, open }}
          which="end"
          fix={end}
          cloud={endCloud}
          sent={shown?.to?.cell}
          choose={setEnd}
        />
      )}
      {!report && !over && (
        <div id="next" ref={next} tabIndex={-1}>
          {promise && !ended ? (
            <Sending
              {...{ stage, rule, ledger, limits, failure, send, placed }}
              invited={tickets ? invited : undefined}
              invite={(typed) => void invite(typed)}
            />
          ) : failure ? (
            <Failed failure={failure} />
          ) : (
            <p role="status" class="soft">
              {say.send.checking}
            </p>
          )}
        </div>
      )}
      {stage === "stuck" && !ended && (
        <button type="button" id="again" onClick={again}>
          {say.tryAgain}
        </button>
      )}
      {erasure && <Erasure words={erasure} />}
      {ledger && <LedgerView {...{ ledger, limits, erase, tickets }} host={HOST} />}
      {shows && <Proof fingerprint={report?.mechanism ?? rule?.id} over={ended} />}
      <footer class="stack-tight">
        {rule && <Numbers rule={rule} />}
        <LimitsForm
          limits={limits}
          open={stage !== "sending"} // they open the device anew, and end what is on its way
          save={(changed) => {
            keepLimits(changed);
            setLimits(changed);
          }}
        />
      </footer>
    </main>
  );
}

/** What became of the wish to delete the list; the button that had the focus is gone. */
function Erasure({ words }: { words: string }) {
  const paragraph = useRef<HTMLParagraphElement>(null);
  useEffect(() => paragraph.current?.focus(), [words]);
  return (
    <p class="notice" id="erasure" role="status" ref={paragraph} tabIndex={-1}>
      {words}
    </p>
  );
}

/** What would be reported from a place, where one is chosen and may be. */
function useCloud(
  device: { readonly current: DeviceProxy | undefined },
  fix: Fix | undefined,
  stage: Stage,
): Cloud | undefined {
  const [cloud, setCloud] = useState<Cloud>();
  useEffect(() => {
    if (!fix || stage !== "open") return setCloud(undefined);
    let current = true;
    void device.current!.call("cloud", fix.lat, fix.lng).then((newCloud) => current && setCloud(newCloud));
    return () => {
      current = false;
    };
  }, [fix, stage]);
  return cloud;
}

function Proof({ fingerprint, over }: { fingerprint: string | undefined; over: boolean }) {
  const { proof } = say;
  return (
    <section class="card stack" aria-labelledby="proof">
      <h2 id="proof">{proof.title}</h2>
      <p>{proof.text(HOST)}</p>
      {!over && (
        <>
          <p>{proof.instead}</p>
          <p>
            <code class="digits">geoveil audit {LINK}</code>
          </p>
        </>
      )}
      {fingerprint && (
        <p>
          {proof.fingerprint}
          <br />
          <code class="digits" id="fingerprint">
            {fingerprint}
          </code>
        </p>
      )}
    </section>
  );
}

/** For whoever asks: the letters of the papers. */
function Numbers({ rule }: { rule: Rule }) {
  const numbers = rule.onGrid ? say.numbers : { ...say.numbers, ...say.listed.numbers };
  const { epsilonPerKm, slackNats } = rule.promise;
  return (
    <details id="numbers">
      <summary>{numbers.title}</summary>
      <dl class="facts">
        <dt>{numbers.promise}</dt>
        <dd>{numbers.promiseValue(cost(epsilonPerKm), cost(slackNats))}</dd>
        <dt>{numbers.cells}</dt>
        <dd>{numbers.cellsValue(number(rule.east.length, 6), distance(rule.cellKm))}</dd>
        <dt>{numbers.round}</dt>
        <dd>{rule.round}</dd>
        <dt>{numbers.expires}</dt>
        <dd>{new Date(1000 * rule.expiresS).toLocaleString(language, { dateStyle: "long", timeStyle: "short" })}</dd>
      </dl>
      <p class="soft">{numbers.meaning}</p>
    </details>
  );
}

interface LimitsFormProps {
  readonly limits: Limits;
  /** Whether they can be changed now. */
  readonly open: boolean;
  readonly save: (limits: Limits) => void;
}

function LimitsForm({ limits, open, save }: LimitsFormProps) {
  const [wrong, setWrong] = useState(false);
  const words = say.limits;
  const onSubmit = (event: SubmitEvent & { currentTarget: HTMLFormElement }): void => {
    event.preventDefault();
    const form = new FormData(event.currentTarget);
    const [maxEpsilonPerKm, budgetPerKm] = ["most", "budget"].map((name) =>
      Number(String(form.get(name)).replace(",", ".")),
    );
    const sound = isLimit(maxEpsilonPerKm) && isLimit(budgetPerKm);
    setWrong(!sound);
    if (sound) save({ maxEpsilonPerKm, budgetPerKm });
  };
  return (
    <details id="limits">
      <summary>{words.title}</summary>
      <form class="typed" onSubmit={onSubmit}>
        <p class="soft">{words.text}</p>
        <div>
          <label for="most">{words.most}</label>
          <input id="most" name="most" inputMode="decimal" defaultValue={asTyped(limits.maxEpsilonPerKm)} required />
        </div>
        <div>
          <label for="budget-limit">{words.budget}</label>
          <input
            id="budget-limit"
            name="budget"
            inputMode="decimal"
            defaultValue={asTyped(limits.budgetPerKm)}
            required
          />
        </div>
        <button type="submit" disabled={!open}>
          {words.save}
        </button>
      </form>
      {wrong && (
        <p class="notice notice-warm" role="alert">
          {words.wrong}
        </p>
      )}
    </details>
  );
}
