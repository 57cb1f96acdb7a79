-- A job comes with the caller's commit and goes with their rollback; last_insert_rowid() stays theirs.
SELECT ml_init();
= 1
CREATE TABLE orders (id INTEGER PRIMARY KEY, job INTEGER);
INSERT INTO orders (id) VALUES (41);
SELECT ml_submit('noop', 'x', NULL), last_insert_rowid();
= 1|41
BEGIN;
INSERT INTO orders (id) VALUES (50);
SELECT ml_submit('noop', 'in', NULL);
= 2
SELECT ml_submit('noop', 'in', NULL, '{"tag": "t"}');
= 3
SELECT last_insert_rowid();
= 50
SELECT ml_cancel(1);
= 1
SELECT id, status FROM ML_JOBS;
= 1|cancelled
= 2|queued
= 3|queued
ROLLBACK;
SELECT id, status FROM ML_JOBS;
= 1|queued
BEGIN;
SELECT ml_submit('noop', 'in', NULL);
= 2
SAVEPOINT s;
SELECT ml_submit('noop', 'in', NULL);
= 3
ROLLBACK TO s;
COMMIT;
SELECT id, status FROM ML_JOBS;
= 1|queued
= 2|queued
INSERT INTO orders (id) VALUES (60) RETURNING id, ml_submit('noop', 'returning', NULL);
= 60|3
SELECT last_insert_rowid();
= 60
INSERT INTO orders (id, job) SELECT 70 + value, ml_submit('noop', 'select', NULL) FROM json_each('[1, 2, 3]');
SELECT id, job FROM orders WHERE id > 70;
= 71|4
= 72|5
= 73|6
INSERT INTO orders (id, job) SELECT iif(value = 9, 41, 80 + value), ml_submit('noop', 'fails', NULL) FROM json_each('[1, 2, 9]');
! UNIQUE constraint failed: orders.id
SELECT count(*) FROM ML_JOBS WHERE target_name = 'fails';
= 0
CREATE TEMP TABLE scratch (job INTEGER);
INSERT INTO scratch SELECT ml_submit('noop', 'temp', NULL) FROM json_each('[1, 2]');
SELECT count(*) FROM scratch JOIN ML_JOBS ON id = job;
= 2
SELECT id FROM (SELECT ml_submit('noop', 'subquery', NULL) AS id);
= 9
ATTACH ':memory:' AS other;
CREATE TABLE other.t AS SELECT ml_submit('noop', 'attached', NULL) AS job;
SELECT count(*) FROM other.t JOIN ML_JOBS ON id = job;
= 1
CREATE TEMP TABLE ml_job (a);
CREATE TEMP TABLE ml_spec (a);
SELECT ml_submit('noop', 'planted', NULL);
= 11
INSERT INTO ML_JOBS (kind, target_name) VALUES ('noop', 'planted');
SELECT count(*) FROM ML_JOBS WHERE target_name = 'planted';
= 2
SELECT count(*) FROM temp.ml_job;
= 0
SELECT ml_wait(1, 0);
= queued
BEGIN;
SELECT ml_wait(1, 0);
! ml_wait cannot be used inside a transaction: workers could not write what they did; COMMIT first
COMMIT;
