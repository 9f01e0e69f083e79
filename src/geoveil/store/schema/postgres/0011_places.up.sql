-- Rounds whose cells are a list of places: their documents say where these are, and not whether people are
-- at a place or anywhere in a cell around it, which no device needs to know and every estimate does.

ALTER TABLE round ADD COLUMN
    around bigint NOT NULL DEFAULT 0         -- 1 where people stand around the places, 0 at them, or no places; immutable
        CONSTRAINT round_people_are_at_or_around CHECK (around IN (0, 1));
