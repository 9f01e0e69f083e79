DROP TABLE upkeep;
INSERT INTO tally (round_key, cell, count)
SELECT t.round_key, CAST(j.key AS INTEGER), sum(j.value) FROM closing_tally t, json_each(t.counts) j
WHERE true GROUP BY 1, 2
ON CONFLICT (round_key, cell) DO UPDATE SET count = count + excluded.count;
DROP TABLE closing_tally;
-- Rounds that wait for their estimate are open again, since their counts are no longer kept apart.
UPDATE round SET closed_at_s = NULL WHERE key IN (
    SELECT k.round_key FROM closing k WHERE NOT EXISTS (SELECT 1 FROM estimate e WHERE e.round_key = k.round_key)
);
DELETE FROM closing WHERE NOT EXISTS (SELECT 1 FROM estimate e WHERE e.round_key = closing.round_key);
CREATE TABLE closing_tally (
    closing_key INTEGER NOT NULL          -- closing.round_key: the round that closed; immutable
        REFERENCES closing (round_key),
    round_key INTEGER NOT NULL            -- the round the counts belong to; immutable
        REFERENCES round (key),
    counts BLOB NOT NULL,                 -- reports by cell: signed 64-bit little-endian, one a cell; immutable
    CONSTRAINT closing_tally_is_unique PRIMARY KEY (closing_key, round_key),
    CONSTRAINT closing_tally_is_whole CHECK (length(counts) > 0 AND length(counts) % 8 = 0)
) STRICT, WITHOUT ROWID;
ALTER TABLE closing DROP COLUMN given_up_at_s;
ALTER TABLE closing DROP COLUMN failures;
ALTER TABLE campaign DROP COLUMN state;
