import { render } from "preact";
import { Page } from "./page.tsx";

render(<Page />, document.getElementById("page")!);

// A page that the browser kept and shows again would still have the place that was chosen before it was left.
addEventListener("pageshow", ({ persisted }) => persisted && location.reload());
