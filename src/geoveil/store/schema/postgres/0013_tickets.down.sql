DROP TABLE invitation;
DROP TABLE ticket_key;
