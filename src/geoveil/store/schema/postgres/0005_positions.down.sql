-- What has ended stays so: which campaigns had before is not known.
SELECT 1;
