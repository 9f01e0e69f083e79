-- One map for each slot of time, beside the map of all.

ALTER TABLE estimate ADD COLUMN
    slots bytea NOT NULL DEFAULT '';     -- deflated JSON: the maps of all slots; empty where there are none; immutable
