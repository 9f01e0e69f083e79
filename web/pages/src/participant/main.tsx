import { render } from "preact";
import { invitationInAddress } from "./campaign.ts";
import { Page } from "./page.tsx";

// With a dot at its end a host is the same, and to a browser another site, with another list of reports.
const there = new URL(location.href);
there.hostname = there.hostname.replace(/\.$/, "");
if (there.hostname !== location.hostname) location.replace(there);
else render(<Page />, document.getElementById("page")!);

// A page that the browser kept and shows again would still have the place that was chosen before it was left.
addEventListener("pageshow", ({ persisted }) => persisted && location.reload());

// A link for one person, opened where the page is already, changes nothing but the fragment.
addEventListener("hashchange", () => invitationInAddress() && location.reload());
