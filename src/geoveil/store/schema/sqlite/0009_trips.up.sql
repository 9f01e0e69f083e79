-- Rounds whose reports are trips: each names two places and is counted under one number for the pair,
-- (number of the place where it began) × (places of one mechanism) + (number of the place where it ended).

ALTER TABLE round ADD COLUMN
    ends INTEGER NOT NULL DEFAULT 1          -- how many places a report names: 2 where it is a trip; immutable
        CONSTRAINT round_has_one_end_or_two CHECK (ends IN (1, 2));
