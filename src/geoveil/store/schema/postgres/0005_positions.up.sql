-- Campaigns that published documents of version 1, whose promise was between cells, have ended: their
-- counts and estimates stay, and devices are told.
UPDATE campaign SET state = 'ended'
WHERE EXISTS (
    SELECT 1 FROM round r
    WHERE r.campaign_key = campaign.key AND position('"geoveil":1,'::bytea IN r.document) > 0
);

-- Their rounds that were closed and not estimated yet are not any more.
UPDATE closing SET given_up_at_s = closed_at_s
WHERE given_up_at_s IS NULL
AND NOT EXISTS (SELECT 1 FROM estimate e WHERE e.round_key = closing.round_key)
AND EXISTS (
    SELECT 1 FROM round r JOIN campaign c ON c.key = r.campaign_key
    WHERE r.key = closing.round_key AND c.state = 'ended'
);
