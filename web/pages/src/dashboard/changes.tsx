/** What an operator can change about a campaign; what cannot be undone is asked for twice. */

import { useState } from "preact/hooks";
import { inWords } from "./problem_words.ts";
import { address, service, type State } from "./service.ts";
import { say } from "./texts.ts";

interface Sure {
  readonly question: string;
  readonly act: () => Promise<unknown>;
}

export function Changes({ state, onChanged }: { state: State; onChanged: () => void }) {
  const [problem, setProblem] = useState("");
  const [sure, setSure] = useState<Sure>();
  const [name, setName] = useState(state.name);
  const act = (work: () => Promise<unknown>): void => {
    setProblem("");
    setSure(undefined);
    work()
      .then(onChanged)
      .catch((error: unknown) => setProblem(inWords(error)));
  };
  const change = (changes: object) => (): void => act(() => service.change(state.id, changes));
  const over = state.state === "ended" || state.state === "finished";
  const remove = async (): Promise<void> => {
    await service.remove(state.id);
    location.hash = "#/";
  };
  const loaded = async (file: File | undefined): Promise<void> => {
    if (file) act(async () => service.keepBackdrop(state.id, await file.text()));
  };
  return (
    <div class="two">
      <section class="card stack">
        <h2>{say.publicMap}</h2>
        <p>{say.publishWhy}</p>
        <button
          type="button"
          class={state.published ? "" : "primary"}
          onClick={change({ published: !state.published })}
        >
          {state.published ? say.unpublish : say.publish}
        </button>
        {state.published && <Embed id={state.id} />}
        <p class="field">
          <label for="new-backdrop">{say.backdrop}</label>
          <input
            id="new-backdrop"
            type="file"
            accept=".json,.geojson,application/geo+json"
            onChange={(event) => void loaded(event.currentTarget.files?.[0])}
          />
        </p>
        <button type="button" onClick={() => act(() => service.forgetBackdrop(state.id))}>
          {say.removeBackdrop}
        </button>
      </section>
      <section class="card stack">
        <h2>{say.controls}</h2>
        <div class="row">
          {!over && (
            <>
              <button type="button" onClick={() => act(() => service.closeRound(state.id))}>
                {say.closeRound}
              </button>
              <button type="button" onClick={change({ next_round_now: true })}>
                {say.nextRound}
              </button>
              <button type="button" onClick={change({ state: state.state === "paused" ? "running" : "paused" })}>
                {state.state === "paused" ? say.resume : say.pause}
              </button>
            </>
          )}
        </div>
        <form
          class="row"
          onSubmit={(event) => {
            event.preventDefault();
            change({ name })();
          }}
        >
          <label for="rename" class="hidden">
            {say.name}
          </label>
          <input
            id="rename"
            value={name}
            maxLength={200}
            required
            onInput={(event) => setName(event.currentTarget.value)}
          />
          <button>{say.rename}</button>
        </form>
        <div class="row">
          {!over && (
            <button
              type="button"
              class="quiet"
              onClick={() =>
                setSure({ question: say.endSure, act: () => service.change(state.id, { state: "ended" }) })
              }
            >
              {say.end}
            </button>
          )}
          <button
            type="button"
            class="quiet"
            onClick={() => setSure({ question: say.removeSure(state.name), act: remove })}
          >
            {say.remove}
          </button>
        </div>
        {sure && (
          <div class="notice notice-warm stack-tight" role="alertdialog" aria-label={sure.question}>
            <p>{sure.question}</p>
            <div class="row">
              <button type="button" class="quiet" onClick={() => act(sure.act)}>
                {say.yes}
              </button>
              <button type="button" onClick={() => setSure(undefined)}>
                {say.no}
              </button>
            </div>
          </div>
        )}
        {problem && (
          <p class="notice notice-warm" role="alert">
            {problem}
          </p>
        )}
      </section>
    </div>
  );
}

function Embed({ id }: { id: string }) {
  const page = address(`m/${encodeURIComponent(id)}`);
  return (
    <>
      <p>
        <a href={page}>{page}</a>
      </p>
      <p class="small">{say.embed}:</p>
      <p>
        <code class="digits">{`<iframe src="${page}" title="Geoveil" width="100%" height="640"></iframe>`}</code>
      </p>
    </>
  );
}
