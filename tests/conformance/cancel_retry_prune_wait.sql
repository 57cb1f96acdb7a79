-- What a user does to jobs that are there.
SELECT ml_init();
= 1
INSERT INTO ML_JOBS (kind, target_name, tag) VALUES ('noop', 'a', 't'), ('noop', 'b', NULL), ('noop', 'c', NULL), ('noop', 'd', NULL);
UPDATE ml_job SET status = 'running', owner = 'w', started_at_ms = 1000, attempt = 1 WHERE id IN (2, 3);
UPDATE ml_job SET status = 'completed', progress = 100, finished_at_ms = 2000, stopped_at_ms = 2000 WHERE id = 3;
SELECT ml_cancel(1), ml_cancel(1), ml_cancel(2), ml_cancel(3), ml_cancel(99), ml_cancel(-1);
= 1|0|1|0|0|0
SELECT id, status, stopped_at_ms IS NULL, message FROM ML_JOBS WHERE id < 4;
= 1|cancelled|0|NULL
= 2|cancelled|1|its handler has not stopped yet
= 3|completed|0|NULL
SELECT ml_cancel(NULL);
! ml_cancel: the id of a job is a whole number, not NULL
SELECT ml_cancel(1.0);
! ml_cancel: the id of a job is a whole number, not 1.0
SELECT ml_cancel('1');
! ml_cancel: the id of a job is a whole number, not '1'
SELECT ml_cancel(x'01');
! ml_cancel: the id of a job is a whole number, not X'01'
SELECT ml_cancel(9223372036854775807);
= 0
SELECT ml_retry(1);
= 5
SELECT id, target_name, status, tag, retry_of FROM ML_JOBS WHERE id = 5;
= 5|a|queued|t|1
SELECT ml_retry(2);
! job 2 is not over yet; wait for it with ml_wait(2), or cancel it with ml_cancel(2)
SELECT ml_retry(4);
! job 4 is not over yet; wait for it with ml_wait(4), or cancel it with ml_cancel(4)
SELECT ml_retry(99);
= NULL
SELECT ml_retry('x');
! ml_retry: the id of a job is a whole number, not 'x'
SELECT ml_wait(1), ml_wait(2), ml_wait(3), ml_wait(4, 0), ml_wait(4, 0.05);
= cancelled|cancelled|completed|queued|queued
SELECT ml_wait(99);
! there is no job 99; SELECT id FROM ML_JOBS lists those there are
SELECT ml_wait('x');
! ml_wait: the id of a job is a whole number, not 'x'
SELECT ml_wait(1, 'x');
! ml_wait: seconds must be a number from 0, not 'x'
SELECT ml_wait(1, -1);
! ml_wait: seconds must be a number from 0, not -1
SELECT ml_wait(1, NULL);
= cancelled
SELECT ml_prune(-1);
! ml_prune: seconds must be a number from 0, not -1
SELECT ml_prune(1e400);
! ml_prune: seconds must be a number from 0, not 9e999
SELECT ml_prune('x');
! ml_prune: seconds must be a number from 0, not 'x'
SELECT ml_prune(NULL);
! ml_prune: seconds must be a number from 0, not NULL
SELECT ml_prune(1e9);
= 1
SELECT ml_prune(86400);
= 0
SELECT group_concat(id) FROM (SELECT id FROM ML_JOBS ORDER BY id);
= 1,2,4,5
BEGIN;
SELECT ml_prune(0);
= 1
SELECT group_concat(id) FROM (SELECT id FROM ML_JOBS ORDER BY id);
= 2,4,5
ROLLBACK;
SELECT ml_prune(0), ml_prune(0);
= 1|0
SELECT group_concat(id) FROM (SELECT id FROM ML_JOBS ORDER BY id);
= 2,4,5
SELECT ml_cancel(id) FROM ML_JOBS WHERE status = 'queued';
= 1
= 1
SELECT ml_submit('noop', 'unique', NULL, '{"unique": "k"}');
= 6
SELECT ml_cancel(6);
= 1
SELECT ml_retry(6);
= 7
SELECT ml_retry(6);
! a live job of this kind has this unique key; wait for it or cancel it
