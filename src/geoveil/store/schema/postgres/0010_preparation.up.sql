-- Campaigns of so many cells that their mechanisms are made outside of a request: what is to be made.

-- A round that opens when its mechanisms are made. Gone when it opens, or stays with the reason why it cannot.
CREATE TABLE preparation (
    campaign_key bigint NOT NULL          -- the campaign that waits for it; immutable
        REFERENCES campaign (key),
    number bigint NOT NULL,               -- of the round that will open; mutable
    space bytea NOT NULL,                 -- its cells as canonical JSON, empty for all of the box; mutable
    claimed_until_s bigint NOT NULL       -- a process works on it until then, seconds; 0: nobody; mutable
        DEFAULT 0,
    failures bigint NOT NULL DEFAULT 0,   -- attempts that failed; mutable
    problem text NOT NULL DEFAULT '',     -- why it cannot be, one sentence; empty while it may; mutable
    CONSTRAINT preparation_is_unique PRIMARY KEY (campaign_key),
    CONSTRAINT preparation_number_counts_from_one CHECK (number >= 1)
);
