-- A table that would hide ML_JOBS is refused.
SELECT ml_init();
= 1
CREATE TABLE main.ml_jobs (a);
-- reopen: again
SELECT ml_submit('noop', 'x', NULL);
! ml_jobs in this database hides the virtual table ML_JOBS; rename it
