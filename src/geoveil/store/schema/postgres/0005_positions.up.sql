-- Campaigns that published documents of version 1, whose promise was between cells, have ended: their
-- counts and estimates stay, and devices are told.
UPDATE campaign SET state = 'ended'
WHERE EXISTS (
    SELECT 1 FROM round r
    WHERE r.campaign_key = campaign.key AND position('"geoveil":1,'::bytea IN r.document) > 0
);
