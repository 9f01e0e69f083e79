-- Campaigns whose map everybody may see, and what is drawn behind the cells.

ALTER TABLE campaign ADD COLUMN
    published_at_s bigint;               -- when its map was published, seconds; empty where it is not; mutable
ALTER TABLE campaign ADD COLUMN
    backdrop bytea;                      -- streets and coast for the pages, GeoJSON; empty where there are none; mutable
