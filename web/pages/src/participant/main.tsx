import { render } from "preact";
import { useEffect, useState } from "preact/hooks";
import { announce } from "../texts/language.ts";
import { say } from "./texts.ts";

/** Where the campaign's own address lies, from `…/c/ID`. */
const CAMPAIGN = location.href.replace(/\/c\/([^/?#]*)\/?(?:[?#].*)?$/, "/api/campaigns/$1");

function Page() {
  const [words, setWords] = useState(say.loading);
  useEffect(() => {
    fetch(CAMPAIGN, { credentials: "omit", referrerPolicy: "no-referrer" })
      .then(async (answer) => {
        if (!answer.ok) return answer.status === 404 ? say.unknown : say.unreachable;
        const { name } = (await answer.json()) as { name: string };
        return say.asked(name);
      })
      .catch(() => say.unreachable)
      .then((found) => {
        setWords(found);
        announce(found);
      });
  }, []);
  return (
    <main class="page stack">
      <h1 aria-live="polite">{words}</h1>
      <p>{say.device}</p>
    </main>
  );
}

render(<Page />, document.getElementById("page")!);
