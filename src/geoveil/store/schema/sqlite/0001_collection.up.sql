-- What a collection is made of: campaigns, their rounds, the ids of counted reports, and the counts.
-- Times are whole seconds since 1970 (UTC) and belong to campaigns and rounds, never to a report.

-- A campaign: one question to one city. Written once, by an operator.
CREATE TABLE campaign (
    key INTEGER PRIMARY KEY,              -- number of the campaign in order of creation; immutable
    id TEXT NOT NULL,                     -- public name in links and requests; immutable
    name TEXT NOT NULL,                   -- title for people; immutable
    settings BLOB NOT NULL,               -- canonical JSON of all settings; immutable
    created_at_s INTEGER NOT NULL,        -- when it was created, seconds since 1970; immutable
    CONSTRAINT campaign_id_is_unique UNIQUE (id),
    CONSTRAINT campaign_id_is_not_empty CHECK (length(id) > 0)
) STRICT;

-- A round: the time during which one mechanism is the current one. Written when it opens.
CREATE TABLE round (
    key INTEGER PRIMARY KEY,              -- number of the round among all campaigns; immutable
    campaign_key INTEGER NOT NULL         -- the campaign it belongs to; immutable
        REFERENCES campaign (key),
    number INTEGER NOT NULL,              -- from 1 within the campaign, without gaps; immutable
    mechanism TEXT NOT NULL,              -- SHA-256 of the document, 64 hexadecimal digits; immutable
    document BLOB NOT NULL,               -- the mechanism document as published, JSON; immutable
    cells INTEGER NOT NULL,               -- number of cells: reports are 0 … cells − 1; immutable
    opened_at_s INTEGER NOT NULL,         -- when it opened, seconds since 1970; immutable
    expires_at_s INTEGER NOT NULL,        -- when devices stop using the document, seconds; immutable
    accept_until_s INTEGER NOT NULL,      -- expiry and grace: later reports are refused, seconds; immutable
    closed_at_s INTEGER,                  -- when it closed, seconds; empty while open; written once
    ids_dropped INTEGER NOT NULL          -- its report ids: 0 kept, 1 being dropped, 2 dropped; mutable
        DEFAULT 0,                        -- (from 1 on no report is taken: a repeated one would count)
    CONSTRAINT round_number_is_unique UNIQUE (campaign_key, number),
    CONSTRAINT round_mechanism_is_unique UNIQUE (mechanism),
    CONSTRAINT round_number_is_positive CHECK (number >= 1),
    CONSTRAINT round_mechanism_is_sha256 CHECK (length(mechanism) = 64),
    CONSTRAINT round_has_cells CHECK (cells >= 1),
    CONSTRAINT round_accepts_until_expiry_or_later CHECK (accept_until_s >= expires_at_s),
    CONSTRAINT round_ids_dropped_is_known CHECK (ids_dropped IN (0, 1, 2))
) STRICT;

-- The ids of reports already counted, so that a repeated one counts once. Neither cell nor time.
-- Without rowid: kept in the order of the random ids, so the order of arrival is not kept.
-- No foreign keys: the statement that inserts has just looked both keys up.
CREATE TABLE report (
    campaign_key INTEGER NOT NULL,        -- campaign.key; immutable
    id BLOB NOT NULL,                     -- 16 random bytes drawn by the device; immutable
    round_key INTEGER NOT NULL,           -- round.key, to forget the id when its round ends; immutable
    CONSTRAINT report_counts_once PRIMARY KEY (campaign_key, id),
    CONSTRAINT report_id_has_16_bytes CHECK (length(id) = 16)
) STRICT, WITHOUT ROWID;

-- How often each cell was reported in each round; a cell never reported has no row.
CREATE TABLE tally (
    round_key INTEGER NOT NULL,           -- round.key; immutable
    cell INTEGER NOT NULL,                -- the reported (noisy) cell, from 0; immutable
    count INTEGER NOT NULL,               -- reports; mutable, only grows
    CONSTRAINT tally_is_unique PRIMARY KEY (round_key, cell),
    CONSTRAINT tally_cell_is_not_negative CHECK (cell >= 0),
    CONSTRAINT tally_count_is_positive CHECK (count >= 1)
) STRICT, WITHOUT ROWID;

-- The sum of a round's counts, so that nobody adds up thousands of cells to show one number.
CREATE TABLE round_total (
    round_key INTEGER NOT NULL,           -- round.key; immutable
    count INTEGER NOT NULL,               -- reports; mutable, only grows
    CONSTRAINT round_total_is_unique PRIMARY KEY (round_key),
    CONSTRAINT round_total_count_is_positive CHECK (count >= 1)
) STRICT, WITHOUT ROWID;
