-- Tables of somebody else under our names are refused, and never touched.
CREATE TABLE ml_job (a);
SELECT ml_init();
! ml_job in this database is not mldb's; rename it or use another file
SELECT ml_submit('noop', 'x', NULL);
! ml_job in this database is not mldb's; rename it or use another file
SELECT * FROM ML_JOBS;
! ml_job in this database is not mldb's; rename it or use another file
DROP TABLE ml_job;
CREATE TABLE ml_schema (version);
SELECT ml_init();
! ml_schema in this database is not mldb's; rename it or use another file
DROP TABLE ml_schema;
CREATE TABLE "ML_JOBS" (a);
SELECT ml_init();
! ml_jobs in this database is not mldb's; rename it or use another file
DROP TABLE "ML_JOBS";
CREATE TABLE ml_other (a);
SELECT ml_init();
= 1
