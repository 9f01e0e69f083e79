-- Rounds with a mechanism for each of several promises, and reports that name a slot of time.
-- A report is counted under one number: ((level × slots) + slot) × (cells of one mechanism) + cell.

ALTER TABLE round ADD COLUMN
    levels text NOT NULL DEFAULT '';      -- ids of its documents with spaces between, the strongest promise first; empty for one; immutable
ALTER TABLE round ADD COLUMN
    slots bigint NOT NULL DEFAULT 1         -- how many slots of time reports tell apart; 1 where none; immutable
        CONSTRAINT round_has_slots CHECK (slots >= 1);

-- The round of each document of a round that has several.
CREATE TABLE level (
    mechanism text NOT NULL,              -- SHA-256 of the document, 64 hexadecimal digits; immutable
    round_key bigint NOT NULL               -- the round that published it; immutable
        REFERENCES round (key),
    CONSTRAINT level_is_unique PRIMARY KEY (mechanism),
    CONSTRAINT level_mechanism_is_sha256 CHECK (length(mechanism) = 64)
);
