DROP TABLE estimate;
DROP TABLE closing_tally;
DROP TABLE closing;
