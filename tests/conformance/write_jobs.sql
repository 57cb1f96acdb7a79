-- Writes to ML_JOBS: an INSERT submits, SET status = 'cancelled' cancels, a DELETE removes what is over.
SELECT ml_init();
= 1
INSERT INTO ML_JOBS (kind, target_name) VALUES ('noop', 'a'), ('noop', NULL), ('noop', 5), ('noop', 1.5);
SELECT last_insert_rowid();
= 4
INSERT INTO ML_JOBS (kind, spec_json, priority, run_at_ms, max_attempts, tag) VALUES ('noop', '{"a": 1}', 3, 4102444800000, 2, 't');
SELECT id, kind, target_name, spec_json, priority, run_at_ms, max_attempts, tag FROM ML_JOBS;
= 1|noop|a|{}|0|NULL|1|NULL
= 2|noop||{}|0|NULL|1|NULL
= 3|noop|5|{}|0|NULL|1|NULL
= 4|noop|1.5|{}|0|NULL|1|NULL
= 5|noop||{"a": 1}|3|4102444800000|2|t
INSERT INTO ML_JOBS (target_name) VALUES ('x');
! kind must be a text such as 'train', not null
INSERT INTO ML_JOBS (kind, id) VALUES ('noop', 9);
! INSERT INTO ML_JOBS cannot set id; give kind, target_name, spec_json, priority, run_at_ms, max_attempts, tag, or use ml_submit()
INSERT INTO ML_JOBS (rowid, kind) VALUES (9, 'noop');
! INSERT INTO ML_JOBS cannot set id; give kind, target_name, spec_json, priority, run_at_ms, max_attempts, tag, or use ml_submit()
INSERT INTO ML_JOBS (kind, status) VALUES ('noop', 'running');
! INSERT INTO ML_JOBS cannot set status; give kind, target_name, spec_json, priority, run_at_ms, max_attempts, tag, or use ml_submit()
INSERT INTO ML_JOBS (kind, owner, attempt) VALUES ('noop', 'w', 1);
! INSERT INTO ML_JOBS cannot set attempt; give kind, target_name, spec_json, priority, run_at_ms, max_attempts, tag, or use ml_submit()
INSERT INTO ML_JOBS (kind, priority) VALUES ('noop', 1.5);
! option 'priority' must be a whole number, higher first, such as 5, not 1.5
INSERT INTO ML_JOBS (kind, priority) VALUES ('noop', 'high');
! option 'priority' must be a whole number, higher first, such as 5, not 'high'
INSERT INTO ML_JOBS (kind, priority) VALUES ('noop', x'00');
! INSERT INTO ML_JOBS: priority must be a finite number or a text, not X'00'
INSERT INTO ML_JOBS (kind, priority) VALUES ('noop', 1e999);
! INSERT INTO ML_JOBS: priority must be a finite number or a text, not 9e999
INSERT INTO ML_JOBS (kind, tag) VALUES ('noop', 5);
! option 'tag' must be a text of at most 1000 characters, not 5
INSERT INTO ML_JOBS (kind, target_name) VALUES ('noop', x'00');
! target must be a text that names what the job is for, not blob
INSERT INTO ML_JOBS (kind, spec_json) VALUES ('noop', '[]');
! spec must be a JSON object, not a JSON array; make it with json_object(...)
INSERT OR IGNORE INTO ML_JOBS (kind, spec_json) VALUES ('noop', '[]');
! spec must be a JSON object, not a JSON array; make it with json_object(...)
INSERT INTO ML_JOBS (kind, spec_json) SELECT 'noop', iif(value = 500, '[]', '{}') FROM (WITH n(value) AS (VALUES (1) UNION ALL SELECT value + 1 FROM n WHERE value < 500) SELECT value FROM n);
! spec must be a JSON object, not a JSON array; make it with json_object(...)
SELECT count(*) FROM ML_JOBS;
= 5
UPDATE ML_JOBS SET status = 'cancelled' WHERE id = 1;
UPDATE ML_JOBS SET status = 'cancelled' WHERE id = 1;
UPDATE ML_JOBS SET status = 'running' WHERE id = 2;
! the only change to ML_JOBS is SET status = 'cancelled'; submit another job for anything else
UPDATE ML_JOBS SET progress = 5 WHERE id = 2;
! the only change to ML_JOBS is SET status = 'cancelled'; submit another job for anything else
UPDATE ML_JOBS SET status = 'cancelled', progress = 5 WHERE id = 2;
! the only change to ML_JOBS is SET status = 'cancelled'; submit another job for anything else
UPDATE ML_JOBS SET id = 77 WHERE id = 2;
! the only change to ML_JOBS is SET status = 'cancelled'; submit another job for anything else
UPDATE ML_JOBS SET rowid = 77 WHERE id = 2;
! the only change to ML_JOBS is SET status = 'cancelled'; submit another job for anything else
UPDATE ML_JOBS SET status = NULL WHERE id = 2;
! the only change to ML_JOBS is SET status = 'cancelled'; submit another job for anything else
UPDATE ML_JOBS SET status = 'cancelled' WHERE id = 999;
SELECT id, status FROM ML_JOBS WHERE id < 3;
= 1|cancelled
= 2|queued
DELETE FROM ML_JOBS WHERE id = 2;
! job 2 is not over, so it cannot be deleted; cancel it with ml_cancel(2) first
DELETE FROM ML_JOBS;
! job 2 is not over, so it cannot be deleted; cancel it with ml_cancel(2) first
SELECT count(*) FROM ML_JOBS;
= 5
DELETE FROM ML_JOBS WHERE id = 1;
SELECT count(*) FROM ML_JOBS;
= 4
BEGIN;
UPDATE ML_JOBS SET status = 'cancelled';
DELETE FROM ML_JOBS;
SELECT count(*) FROM ML_JOBS;
= 0
ROLLBACK;
SELECT status, count(*) FROM ML_JOBS GROUP BY 1;
= queued|4
INSERT INTO ML_JOBS (kind, target_name) SELECT kind, 'copy' FROM ML_JOBS;
SELECT count(*) FROM ML_JOBS;
= 8
CREATE TABLE ML_JOBS (a);
DROP TABLE ML_JOBS;
