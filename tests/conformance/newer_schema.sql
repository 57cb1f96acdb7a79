-- A queue that a newer version made is left alone.
SELECT ml_init();
= 1
INSERT INTO ml_schema (version, name, applied_at_ms) VALUES (99, 'later', 0);
-- reopen: again
SELECT ml_submit('noop', 'x', NULL);
! a newer mldb made this queue (its schema is 99, this mldb knows 1); upgrade mldb
SELECT ml_init();
! a newer mldb made this queue (its schema is 99, this mldb knows 1); upgrade mldb
