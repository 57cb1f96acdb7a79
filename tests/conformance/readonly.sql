-- A connection that may not write is no way to change jobs; reading works.
SELECT ml_init();
= 1
SELECT ml_submit('noop', 'x', NULL);
= 1
PRAGMA query_only = 1;
SELECT ml_submit('noop', 'x', NULL);
! this connection is read-only, so it cannot change jobs or wait for them; open it for writing
SELECT ml_submit('noop', 'x', NULL, '{"priority": 1}');
! this connection is read-only, so it cannot change jobs or wait for them; open it for writing
SELECT ml_cancel(1);
! this connection is read-only, so it cannot change jobs or wait for them; open it for writing
SELECT ml_retry(1);
! this connection is read-only, so it cannot change jobs or wait for them; open it for writing
SELECT ml_prune(0);
! this connection is read-only, so it cannot change jobs or wait for them; open it for writing
SELECT ml_wait(1, 0);
! this connection is read-only, so it cannot change jobs or wait for them; open it for writing
SELECT ml_init();
= 0
INSERT INTO ML_JOBS (kind) VALUES ('noop');
! attempt to write a readonly database
UPDATE ML_JOBS SET status = 'cancelled';
! attempt to write a readonly database
DELETE FROM ML_JOBS;
! attempt to write a readonly database
SELECT id, status FROM ML_JOBS;
= 1|queued
BEGIN;
SELECT ml_submit('noop', 'x', NULL);
! this connection is read-only, so it cannot change jobs or wait for them; open it for writing
ROLLBACK;
PRAGMA query_only = 0;
SELECT ml_submit('noop', 'x', NULL);
= 2
-- reopen: readonly
SELECT ml_submit('noop', 'x', NULL);
! this connection is read-only, so it cannot change jobs or wait for them; open it for writing
SELECT ml_cancel(1);
! this connection is read-only, so it cannot change jobs or wait for them; open it for writing
SELECT ml_wait(1, 0);
! this connection is read-only, so it cannot change jobs or wait for them; open it for writing
INSERT INTO ML_JOBS (kind) VALUES ('noop');
! attempt to write a readonly database
SELECT id, status FROM ML_JOBS WHERE status = 'queued';
= 1|queued
= 2|queued
SELECT ml_init();
= 0
