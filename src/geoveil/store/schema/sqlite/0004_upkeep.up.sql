-- Campaigns that can be paused and ended, closings that are given up, counts kept once, and the time.

ALTER TABLE campaign ADD COLUMN
    state TEXT NOT NULL DEFAULT 'running' -- running, paused or ended, as the operator says; mutable
        CONSTRAINT campaign_state_is_known CHECK (state IN ('running', 'paused', 'ended'));

ALTER TABLE closing ADD COLUMN
    failures INTEGER NOT NULL DEFAULT 0   -- attempts at its estimate that failed, in a row; mutable
        CONSTRAINT closing_failures_is_not_negative CHECK (failures >= 0);
ALTER TABLE closing ADD COLUMN
    given_up_at_s INTEGER;                -- when the attempts came to an end without an estimate; written once

DROP TABLE closing_tally;
-- The counts that a closing took over from tally: what was reported since the closing before, by round.
-- The counts at a closing are the sums of its rows and those of all closings of the campaign before it.
CREATE TABLE closing_tally (
    closing_key INTEGER NOT NULL          -- closing.round_key: the round that closed; immutable
        REFERENCES closing (round_key),
    round_key INTEGER NOT NULL            -- the round the counts belong to; immutable
        REFERENCES round (key),
    counts TEXT NOT NULL,                 -- JSON object: cell → reports, cells without any left out; immutable
    CONSTRAINT closing_tally_is_unique PRIMARY KEY (closing_key, round_key)
) STRICT, WITHOUT ROWID;

-- A closing that waits for its estimate takes the counts of now; those that have theirs need none.
INSERT INTO closing_tally (closing_key, round_key, counts)
SELECT k.round_key, t.round_key, json_group_object(t.cell, t.count)
FROM closing k JOIN round r ON r.key = k.round_key JOIN round o ON o.campaign_key = r.campaign_key
JOIN tally t ON t.round_key = o.key
WHERE NOT EXISTS (SELECT 1 FROM estimate e WHERE e.round_key = k.round_key)
GROUP BY k.round_key, t.round_key;
DELETE FROM tally WHERE round_key IN (SELECT round_key FROM closing_tally);

-- What the service knows of time. One row, or none before the first start.
CREATE TABLE upkeep (
    key INTEGER PRIMARY KEY,              -- always 1; immutable
    seen_at_s INTEGER NOT NULL,           -- the time when a service last looked, seconds since 1970; mutable
    copied_at_s INTEGER,                  -- of which time this is a backup, seconds; empty once opened; mutable
    CONSTRAINT upkeep_is_one_row CHECK (key = 1)
) STRICT;
