-- What is still to be done is found without a look at all that was ever done: closings without an estimate,
-- rounds whose ids are kept, and what refers to a round that is deleted.

ALTER TABLE closing ADD COLUMN
    estimated bigint NOT NULL DEFAULT 0       -- 1 where it has its estimate; written once
        CONSTRAINT closing_is_estimated_or_not CHECK (estimated IN (0, 1));
UPDATE closing SET estimated = 1 WHERE round_key IN (SELECT round_key FROM estimate);

CREATE INDEX closing_that_waits ON closing (closed_at_s) WHERE given_up_at_s IS NULL AND estimated = 0;
CREATE INDEX round_with_ids ON round (accept_until_s) WHERE ids_dropped < 2;
CREATE INDEX closing_tally_of_round ON closing_tally (round_key);
CREATE INDEX level_of_round ON level (round_key);
