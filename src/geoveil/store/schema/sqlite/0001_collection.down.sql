DROP TABLE round_total;
DROP TABLE tally;
DROP TABLE report;
DROP TABLE round;
DROP TABLE campaign;
