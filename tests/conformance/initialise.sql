-- Before the queue is made, everything says what to run; making it twice does nothing the second time.
SELECT ml_submit('noop', 'x', NULL);
! this database has no job queue yet; run SELECT ml_init(), or: mldb init FILE
SELECT ml_cancel(1);
! this database has no job queue yet; run SELECT ml_init(), or: mldb init FILE
SELECT ml_retry(1);
! this database has no job queue yet; run SELECT ml_init(), or: mldb init FILE
SELECT ml_prune(0);
! this database has no job queue yet; run SELECT ml_init(), or: mldb init FILE
SELECT ml_wait(1);
! this database has no job queue yet; run SELECT ml_init(), or: mldb init FILE
SELECT * FROM ML_JOBS;
! this database has no job queue yet; run SELECT ml_init(), or: mldb init FILE
INSERT INTO ML_JOBS (kind) VALUES ('noop');
! this database has no job queue yet; run SELECT ml_init(), or: mldb init FILE
SELECT count(*) FROM sqlite_schema;
= 0
PRAGMA journal_mode;
= delete
SELECT ml_init();
= 1
PRAGMA journal_mode;
= wal
SELECT ml_init();
= 0
SELECT length(ml_version() ->> 'mldb') > 0, ml_version() ->> 'sqlite' = sqlite_version(), ml_version() ->> 'journal_mode', ml_version() ->> 'synchronous', json_type(ml_version(), '$.known_faults');
= 1|1|wal|full|array
SELECT ml_submit('noop', 'x', NULL);
= 1
SELECT name FROM pragma_table_info('ML_JOBS');
= id
= kind
= target_name
= status
= progress
= created_at_ms
= started_at_ms
= finished_at_ms
= error_message
= spec_json
= metrics_json
= priority
= run_at_ms
= attempt
= max_attempts
= owner
= stopped_at_ms
= duration_ms
= message
= tag
= retry_of
SELECT * FROM ML_JOBS WHERE 0;
BEGIN;
SELECT ml_init();
= 0
COMMIT;
PRAGMA journal_mode = DELETE;
! database is locked
