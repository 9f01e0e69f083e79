-- What happens when a round closes: the counts of that moment, and what was learnt from them.

-- A round that closed with enough reports and is to be estimated. Written in the closing transaction.
CREATE TABLE closing (
    round_key bigint NOT NULL             -- the round that closed; immutable
        REFERENCES round (key),
    closed_at_s bigint NOT NULL,          -- when, seconds since 1970; immutable
    claimed_until_s bigint NOT NULL       -- a process works on it until then, seconds; 0: nobody; mutable
        DEFAULT 0,
    CONSTRAINT closing_is_unique PRIMARY KEY (round_key)
);

-- The counts of every round of the campaign as of the closing transaction.
CREATE TABLE closing_tally (
    closing_key bigint NOT NULL           -- closing.round_key: the round that closed; immutable
        REFERENCES closing (round_key),
    round_key bigint NOT NULL             -- the round the counts belong to; immutable
        REFERENCES round (key),
    counts bytea NOT NULL,                -- reports by cell: signed 64-bit little-endian, one a cell; immutable
    CONSTRAINT closing_tally_is_unique PRIMARY KEY (closing_key, round_key),
    CONSTRAINT closing_tally_is_whole CHECK (length(counts) > 0 AND length(counts) % 8 = 0)
);

-- What was learnt when a round closed. Written once, with the next round.
CREATE TABLE estimate (
    round_key bigint NOT NULL             -- the round whose closing it belongs to; immutable
        REFERENCES closing (round_key),
    made_at_s bigint NOT NULL,            -- when it was made, seconds since 1970; immutable
    reports bigint NOT NULL,              -- reports it was made from, over all rounds; immutable
    body bytea NOT NULL,                  -- canonical JSON of the result; immutable
    CONSTRAINT estimate_is_unique PRIMARY KEY (round_key),
    CONSTRAINT estimate_has_reports CHECK (reports >= 1)
);
