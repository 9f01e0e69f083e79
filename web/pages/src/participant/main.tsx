import { render } from "preact";
import { Page } from "./page.tsx";

// With a dot at its end a host is the same, and to a browser another site, with another list of reports.
const there = new URL(location.href);
there.hostname = there.hostname.replace(/\.$/, "");
if (there.hostname !== location.hostname) location.replace(there);
else render(<Page />, document.getElementById("page")!);

// A page that the browser kept and shows again would still have the place that was chosen before it was left.
addEventListener("pageshow", ({ persisted }) => persisted && location.reload());
