ALTER TABLE campaign DROP COLUMN backdrop;
ALTER TABLE campaign DROP COLUMN published_at_s;
