ALTER TABLE estimate DROP COLUMN slots;
