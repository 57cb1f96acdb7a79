-- Views and triggers of a file that came from elsewhere cannot call what writes; plain SQL on ml_job stays open to them.
SELECT ml_init();
= 1
CREATE TABLE t (a);
CREATE VIEW calls AS SELECT ml_submit('noop', 'view', NULL) AS job;
SELECT * FROM calls;
! unsafe use of ml_submit()
CREATE VIEW cancels AS SELECT ml_cancel(1);
SELECT * FROM cancels;
! unsafe use of ml_cancel()
CREATE VIEW waits AS SELECT ml_wait(1);
SELECT * FROM waits;
! unsafe use of ml_wait()
CREATE VIEW prunes AS SELECT ml_prune(0);
SELECT * FROM prunes;
! unsafe use of ml_prune()
CREATE VIEW retries AS SELECT ml_retry(1);
SELECT * FROM retries;
! unsafe use of ml_retry()
CREATE VIEW makes AS SELECT ml_init();
SELECT * FROM makes;
! unsafe use of ml_init()
CREATE VIEW lists AS SELECT id FROM ML_JOBS;
SELECT * FROM lists;
! unsafe use of virtual table "ML_JOBS"
CREATE VIEW plain_list AS SELECT id, status FROM ML_JOB_LIST;
SELECT * FROM plain_list;
CREATE TRIGGER on_t AFTER INSERT ON t BEGIN SELECT ml_submit('noop', 'trigger', NULL); END;
INSERT INTO t VALUES (1);
! unsafe use of ml_submit()
DROP TRIGGER on_t;
CREATE TRIGGER on_t AFTER INSERT ON t BEGIN INSERT INTO ML_JOBS (kind) VALUES ('noop'); END;
INSERT INTO t VALUES (1);
! unsafe use of virtual table "ML_JOBS"
DROP TRIGGER on_t;
CREATE TRIGGER on_t AFTER INSERT ON t BEGIN INSERT INTO ml_job (kind, target_name) VALUES ('noop', NEW.a); END;
INSERT INTO t VALUES ('by trigger');
SELECT id, target_name, status FROM plain_list JOIN ML_JOBS USING (id, status);
= 1|by trigger|queued
CREATE TRIGGER no_more BEFORE INSERT ON ml_job WHEN NEW.kind = 'refused' BEGIN SELECT RAISE(ABORT, 'no more of these'); END;
SELECT ml_submit('refused', 'x', NULL);
! no more of these
SELECT ml_submit('refused', 'x', NULL, '{"priority": 1}');
! no more of these
INSERT INTO ML_JOBS (kind) VALUES ('refused');
! no more of these
SELECT ml_submit('noop', 'x', NULL);
= 2
