/** Everything that the participant page says. */

import { texts } from "../texts/language.ts";

export const say = texts(
  {
    loading: "The campaign is being asked for …",
    unknown: "There is no campaign at this address.",
    unreachable: "The service does not answer now. Nothing was sent; try again later.",
    asked: (name: string) => `${name} asks for one noisy report`,
    device:
      "To report, use the Python or the TypeScript device with this page's address. It checks the rule that blurs your location before it reads it.",
  },
  {
    loading: "Die Kampagne wird abgerufen …",
    unknown: "Unter dieser Adresse gibt es keine Kampagne.",
    unreachable: "Der Dienst antwortet gerade nicht. Nichts wurde gesendet; versuchen Sie es später wieder.",
    asked: (name: string) => `${name} bittet um eine verrauschte Meldung`,
    device:
      "Zum Melden nutzen Sie das Gerät in Python oder TypeScript mit der Adresse dieser Seite. Es prüft die Regel, die Ihren Standort verwischt, bevor es ihn liest.",
  },
);
