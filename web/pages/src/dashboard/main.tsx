/** The dashboard: sign in, all campaigns, a new one, one campaign. */

import { type ComponentChildren, render } from "preact";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { announce, language } from "../texts/language.ts";
import { CampaignView } from "./campaign.tsx";
import { NewCampaign } from "./new_campaign.tsx";
import { inWords, isDenied } from "./problem_words.tsx";
import { type Listed, service, token } from "./service.ts";
import { takeFromAddress } from "./simulated.ts";
import { say } from "./texts.ts";
import { forgetDraft } from "./wish.ts";

const AGAIN_MS = 3000;

/** `denied`: whether the service took the token before, and does not any more. */
function SignIn({ denied, onToken }: { denied: boolean; onToken: () => void }) {
  const [text, setText] = useState("");
  const [problem, setProblem] = useState<ComponentChildren>(denied ? say.denied : "");
  const [busy, setBusy] = useState(false);
  const enter = (event: Event): void => {
    event.preventDefault();
    setBusy(true);
    token.set(text.trim());
    service
      .campaigns()
      .then(onToken)
      .catch((error: unknown) => {
        token.forget();
        setProblem(inWords(error));
      })
      .finally(() => setBusy(false));
  };
  return (
    <main class="narrow stack">
      <h1>{say.dashboard}</h1>
      <form class="card stack" onSubmit={enter}>
        <p>{say.signInWhy}</p>
        <p class="field">
          <label for="token">{say.token}</label>
          <input
            id="token"
            type="password"
            autocomplete="off"
            spellcheck={false}
            required
            value={text}
            onInput={(event) => setText(event.currentTarget.value)}
          />
        </p>
        <p class="small soft">{say.tokenWhere}</p>
        {problem && (
          <p class="notice notice-warm" role="alert">
            {problem}
          </p>
        )}
        <button class="primary" disabled={busy}>
          {say.signIn}
        </button>
      </form>
    </main>
  );
}

function Campaigns({ onDenied }: { onDenied: () => void }) {
  const [campaigns, setCampaigns] = useState<readonly Listed[]>();
  const [problem, setProblem] = useState<ComponentChildren>("");
  useEffect(() => {
    let again = 0;
    let gone = false;
    const look = (): void => {
      service
        .campaigns()
        .then((list) => {
          setCampaigns(list);
          setProblem("");
        })
        .catch((error: unknown) => {
          if (isDenied(error) && !gone) onDenied();
          setProblem(inWords(error, say.byItself));
        })
        .finally(() => {
          if (!gone) again = window.setTimeout(look, AGAIN_MS);
        });
    };
    look();
    return () => {
      gone = true;
      clearTimeout(again);
    };
  }, []);
  return (
    <main class="stack">
      <div class="row spread">
        <h1>{say.campaigns}</h1>
        <a class="button primary" href="#/new">
          {say.make}
        </a>
      </div>
      {problem && (
        <p class="notice notice-warm" role="alert">
          {problem}
        </p>
      )}
      {campaigns?.length === 0 && <p class="card lead">{say.none}</p>}
      <ul class="cards">
        {campaigns?.map((campaign) => (
          <li key={campaign.id}>
            <a class="card campaign-card" href={`#/${encodeURIComponent(campaign.id)}`}>
              <strong class="lead">{campaign.name}</strong>
              <span class="row small">
                <span class={`badge badge-${campaign.state}`}>{say.states[campaign.state] ?? campaign.state}</span>
                {campaign.published && <span class="badge">{say.published}</span>}
                <span class="soft">{say.since(dateOf(campaign.created_at))}</span>
              </span>
            </a>
          </li>
        ))}
      </ul>
    </main>
  );
}

/** A day as the reader writes it. */
function dateOf(seconds: number): string {
  return new Date(1000 * seconds).toLocaleDateString(language, { dateStyle: "medium" });
}

function Dashboard() {
  const [signedIn, setSignedIn] = useState(() => token.get() !== "");
  const [denied, setDenied] = useState(false);
  const [place, setPlace] = useState(location.hash);
  useEffect(() => {
    const moved = (): void => setPlace(location.hash);
    addEventListener("hashchange", moved);
    return () => removeEventListener("hashchange", moved);
  }, []);
  const route = place.replace(/^#\/?/, "");
  const first = useRef(true);
  useLayoutEffect(() => {
    announce(route === "new" ? `${say.make} · ${say.title}` : say.title);
    const main = document.querySelector("main")!;
    main.tabIndex = -1;
    if (!first.current) main.focus(); // the link that led here is gone; at once, so that a key pressed next is not lost
    first.current = false;
  }, [route, signedIn]);
  if (!signedIn) return <SignIn denied={denied} onToken={() => setSignedIn(true)} />;
  const leave = (against: boolean): void => {
    token.forget();
    setDenied(against);
    setSignedIn(false);
  };
  const onDenied = (): void => leave(true);
  return (
    <>
      <header class="top row spread">
        <a class="brand" href="#/">
          Geoveil
        </a>
        <button
          type="button"
          onClick={() => {
            forgetDraft();
            leave(false);
          }}
        >
          {say.signOut}
        </button>
      </header>
      {route === "" && <Campaigns onDenied={onDenied} />}
      {route === "new" && <NewCampaign onDenied={onDenied} />}
      {route !== "" && route !== "new" && <CampaignView key={route} id={route} onDenied={onDenied} />}
    </>
  );
}

takeFromAddress();
render(<Dashboard />, document.getElementById("page")!);
