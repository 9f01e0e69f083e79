import { texts } from "../texts/language.ts";

/** What is said of files with shapes. */
export const say = texts(
  {
    drop: "Choose a file, or drop it here.",
    chosen: (name: string) => `Chosen: ${name}`,
    remove: "Remove",
    tooLarge: "The file must have at most 4 MiB. Simplify its shapes and try again.",
    tooMany: "The file must have at most 400,000 positions. Simplify its shapes and try again.",
    noJson: "The file must be GeoJSON: this one is no JSON.",
    noGeoJson: "The file must be GeoJSON: a part of this one is no shape of it.",
    noDegrees: "The file must have longitudes within ±180 and latitudes within ±90 degrees (WGS 84).",
    noArea: "The file must hold areas (Polygon or MultiPolygon).",
    nothing: "The file must hold lines or areas.",
    noAreaNorPoint: "The file must hold areas (Polygon or MultiPolygon), or points.",
    mixed: "The file must hold areas only, or points only: city limits, or places.",
  },
  {
    drop: "Wählen Sie eine Datei, oder legen Sie sie hier ab.",
    chosen: (name: string) => `Gewählt: ${name}`,
    remove: "Entfernen",
    tooLarge:
      "Die Datei darf höchstens 4 MiB groß sein. Vereinfachen Sie ihre Formen und versuchen Sie es noch einmal.",
    tooMany:
      "Die Datei darf höchstens 400.000 Punkte haben. Vereinfachen Sie ihre Formen und versuchen Sie es noch einmal.",
    noJson: "Die Datei muss GeoJSON sein: Diese ist kein JSON.",
    noGeoJson: "Die Datei muss GeoJSON sein: Ein Teil von dieser ist keine Form davon.",
    noDegrees: "Die Datei muss Längen zwischen ±180 und Breiten zwischen ±90 Grad haben (WGS 84).",
    noArea: "Die Datei muss Flächen enthalten (Polygon oder MultiPolygon).",
    nothing: "Die Datei muss Linien oder Flächen enthalten.",
    noAreaNorPoint: "Die Datei muss Flächen (Polygon oder MultiPolygon) oder Punkte enthalten.",
    mixed: "Die Datei muss nur Flächen oder nur Punkte enthalten: Stadtgrenzen oder Orte.",
  },
);
