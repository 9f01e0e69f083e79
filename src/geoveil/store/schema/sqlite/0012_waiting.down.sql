DROP INDEX level_of_round;
DROP INDEX closing_tally_of_round;
DROP INDEX round_with_ids;
DROP INDEX closing_that_waits;
ALTER TABLE closing DROP COLUMN estimated;
