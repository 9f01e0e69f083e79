/** Where a campaign takes one report for each invitation: whether there is one, and a field for its code. */

import { say } from "./texts.ts";

const words = say.invitation;

export interface Invited {
  /** Whether this browser has an invitation that was not refused. */
  readonly kept: boolean;
  /** Whether what was given is none. */
  readonly wrong: boolean;
}

interface InvitationProps extends Invited {
  readonly invite: (typed: string) => void;
}

export function Invitation({ kept, wrong, invite }: InvitationProps) {
  const onSubmit = (event: SubmitEvent & { currentTarget: HTMLFormElement }): void => {
    event.preventDefault();
    invite(String(new FormData(event.currentTarget).get("invitation")));
  };
  return (
    <div class="stack-tight" id="invitation" data-kept={kept}>
      <h3>{words.title}</h3>
      <p>
        {kept ? words.kept : words.needed} {words.hides}
      </p>
      {!kept && (
        <form class="typed" onSubmit={onSubmit}>
          <div>
            <label for="code">{words.code}</label>
            <input
              id="code"
              name="invitation"
              autocomplete="off"
              autocapitalize="none"
              spellcheck={false}
              required
              aria-invalid={wrong}
              aria-describedby={wrong ? "code-wrong" : undefined}
            />
          </div>
          <button type="submit">{words.use}</button>
        </form>
      )}
      {wrong && (
        <p class="notice notice-warm" id="code-wrong" role="alert">
          {words.wrong}
        </p>
      )}
    </div>
  );
}
