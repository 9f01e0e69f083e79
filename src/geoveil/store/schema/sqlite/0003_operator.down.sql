DROP TABLE token;
