-- Outside WAL the queue does not work, and says so.
SELECT ml_init();
= 1
-- reopen: again
PRAGMA journal_mode = DELETE;
= delete
-- reopen: again
SELECT ml_submit('noop', 'x', NULL);
! the queue needs journal mode WAL and the database is in mode delete; run SELECT ml_init()
SELECT * FROM ML_JOBS;
! the queue needs journal mode WAL and the database is in mode delete; run SELECT ml_init()
SELECT ml_init();
= 1
SELECT ml_submit('noop', 'x', NULL);
= 1
