-- One map for each slot of time, beside the map of all.

ALTER TABLE estimate ADD COLUMN
    slots BLOB NOT NULL DEFAULT x'';     -- deflated JSON: the maps of all slots; empty where there are none; immutable
