-- A queue whose tables were changed is refused by a connection that opens it then.
SELECT ml_init();
= 1
DROP TRIGGER ml_job_goes;
-- reopen: again
SELECT ml_submit('noop', 'x', NULL);
! ml_job_goes in this database is not as mldb made it; use another file, or a backup of this one
SELECT * FROM ML_JOBS;
! ml_job_goes in this database is not as mldb made it; use another file, or a backup of this one
SELECT ml_init();
! ml_job_goes in this database is not as mldb made it; use another file, or a backup of this one
