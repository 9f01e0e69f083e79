/** Where the person is, by the browser, by the map or by typing; it stays in this page. */

import { useEffect, useRef, useState } from "preact/hooks";
import type { Backdrop } from "../map/backdrop.ts";
import { degrees, distance, number } from "../texts/language.ts";
import type { Cloud, Fix, Rule } from "./device.ts";
import { Ground, PlaceMap } from "./place_map.tsx";
import { placeWords, say } from "./texts.ts";

const PATIENCE_MS = 30_000;
const words = say.place;

interface PlaceProps {
  /** The place somebody is at, or where a trip began or ended. */
  readonly which: "place" | "begin" | "end";
  readonly rule: Rule;
  readonly backdrop: Backdrop | undefined;
  readonly fix: Fix | undefined;
  readonly cloud: Cloud | undefined;
  /** Whether a place may be chosen now: the rule is checked, and nothing was sent yet. */
  readonly open: boolean;
  readonly sent: number | undefined;
  readonly choose: (fix: Fix | undefined) => void;
}

export function PlaceChoice({ which, rule, backdrop, fix, cloud, open, sent, choose }: PlaceProps) {
  const ground = new Ground(rule);
  const words = placeWords(rule);
  const chosen = fix && ground.placeOf(fix.lat, fix.lng);
  return (
    <section class="card stack" aria-labelledby={named(which, "place")}>
      <h2 id={named(which, "place")}>{titleOf(which, sent !== undefined)}</h2>
      <p>{sent === undefined ? words.how : words.sentHow}</p>
      <PlaceMap
        rule={rule}
        backdrop={backdrop}
        place={chosen}
        cloud={cloud}
        sent={sent}
        choose={
          open
            ? (place) => {
                const [lat, lng] = ground.degreesOf(place);
                choose({ lat, lng });
              }
            : undefined
        }
      />
      {cloud && (
        <div class="map-legend small soft" aria-hidden="true">
          <span>{words.legend}</span>
          <span>{words.seldom}</span>
          <span class="ramp" />
          <span>{words.often}</span>
        </div>
      )}
      <div role="status" class="stack-tight" id={named(which, "from-here")}>
        {fix && cloud && <FromHere fix={fix} cloud={cloud} rule={rule} />}
      </div>
      {open && <Ways {...{ which, fix, choose }} />}
      {open && <p class="soft small">{words.stays}</p>}
    </section>
  );
}

/** Names of elements: the two ends of a trip must not share them. */
function named(which: PlaceProps["which"], name: string): string {
  return which === "end" ? `end-${name}` : name;
}

function titleOf(which: PlaceProps["which"], sent: boolean): string {
  if (which === "place") return sent ? words.sentTitle : words.title;
  return which === "begin" ? say.trip.begin : say.trip.end;
}

function FromHere({ fix, cloud, rule }: { fix: Fix; cloud: Cloud; rule: Rule }) {
  const most = 100 * cloud.shares.reduce((one, other) => Math.max(one, other), 0);
  const { accuracyKm } = fix;
  const words = placeWords(rule);
  return (
    <>
      <p>
        <strong>{words.from(degrees(fix.lat, fix.lng))}</strong>{" "}
        {words.half(distance(rounded(cloud.halfWithinKm)), distance(rounded(cloud.mostWithinKm)))}{" "}
        {words.most(number(most, 2))}
      </p>
      {cloud.outside && <p class="notice">{words.outside}</p>}
      {accuracyKm !== undefined && accuracyKm > rule.cellKm && (
        <p class="notice notice-warm">{words.tooCoarse(distance(rounded(accuracyKm)), distance(rule.cellKm))}</p>
      )}
      {accuracyKm !== undefined && accuracyKm <= rule.cellKm && (
        <p class="soft small">{words.accuracy(distance(rounded(accuracyKm)))}</p>
      )}
    </>
  );
}

function rounded(km: number): number {
  return Number(km.toPrecision(2));
}

/** The browser's own location, and two numbers to type. */
function Ways({ which, fix, choose }: Pick<PlaceProps, "which" | "fix" | "choose">) {
  const [measuring, setMeasuring] = useState(false);
  const [problem, setProblem] = useState("");
  const [cleared, setCleared] = useState(0);
  const button = useRef<HTMLButtonElement>(null);
  const latest = useRef(0);
  const forget = (): void => {
    latest.current++; // what is being measured is not awaited any more
    setMeasuring(false);
    setProblem("");
  };
  useEffect(() => forget, [fix]); // another place was chosen meanwhile, or none can be any more
  const clear = (): void => {
    button.current?.focus(); // the button of clearing goes
    setCleared(cleared + 1); // and with it what was typed
    choose(undefined);
  };
  const measure = (): void => {
    if (measuring) return;
    if (!navigator.geolocation) return setProblem(words.failed); // some browsers have none, or let people switch it off
    setMeasuring(true);
    setProblem("");
    const turn = ++latest.current;
    navigator.geolocation.getCurrentPosition(
      ({ coords: { latitude: lat, longitude: lng, accuracy } }) => {
        if (turn !== latest.current) return;
        setMeasuring(false);
        choose({ lat, lng, accuracyKm: accuracy / 1000 });
      },
      ({ code, PERMISSION_DENIED }) => {
        if (turn !== latest.current) return;
        setMeasuring(false);
        setProblem(code === PERMISSION_DENIED ? words.denied : words.failed);
      },
      { enableHighAccuracy: true, maximumAge: 0, timeout: PATIENCE_MS },
    );
  };
  return (
    <>
      <div class="row">
        <button type="button" ref={button} id={named(which, "measure")} aria-disabled={measuring} onClick={measure}>
          {measuring ? words.measuring : words.measure}
        </button>
        {fix && (
          <button type="button" id={named(which, "clear")} onClick={clear}>
            {words.clear}
          </button>
        )}
      </div>
      {problem && (
        <p class="notice notice-warm" role="alert">
          {problem}
        </p>
      )}
      <Typed key={cleared} {...{ which, choose }} />
    </>
  );
}

function Typed({ which, choose }: Pick<PlaceProps, "which" | "choose">) {
  const [wrong, setWrong] = useState(false);
  const onSubmit = (event: SubmitEvent & { currentTarget: HTMLFormElement }): void => {
    event.preventDefault();
    const form = new FormData(event.currentTarget);
    const [lat, lng] = ["lat", "lng"].map((name) => parsed(String(form.get(name)))) as [number, number];
    const sound = Math.abs(lat) <= 90 && Math.abs(lng) <= 180;
    setWrong(!sound);
    if (sound) choose({ lat, lng });
  };
  /** Maps hand out both numbers as one text. */
  const onPaste = (event: ClipboardEvent & { currentTarget: HTMLFormElement }): void => {
    const both = PAIR.exec(event.clipboardData?.getData("text").trim() ?? "");
    if (!both) return;
    event.preventDefault();
    for (const [at, input] of event.currentTarget.querySelectorAll("input").entries()) input.value = both[at + 1]!;
  };
  return (
    <details>
      <summary>{words.typed}</summary>
      <form class="typed" onSubmit={onSubmit} onPaste={onPaste}>
        <div>
          <label for={named(which, "lat")}>{words.lat}</label>
          <input id={named(which, "lat")} name="lat" inputMode="decimal" autocomplete="off" required />
        </div>
        <div>
          <label for={named(which, "lng")}>{words.lng}</label>
          <input id={named(which, "lng")} name="lng" inputMode="decimal" autocomplete="off" required />
        </div>
        <button type="submit">{words.show}</button>
      </form>
      {wrong && (
        <p class="notice notice-warm" role="alert">
          {words.wrong}
        </p>
      )}
    </details>
  );
}

const PAIR = /^([-−]?\d+[.]\d+)°?\s*[,;\s]\s*([-−]?\d+[.]\d+)°?$/;

/** A number with a point or a comma; NaN for anything else. */
function parsed(text: string): number {
  const plain = text.trim().replace(",", ".").replace("−", "-");
  return plain === "" ? NaN : Number(plain);
}
