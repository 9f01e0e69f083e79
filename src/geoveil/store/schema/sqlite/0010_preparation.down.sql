DROP TABLE preparation;
