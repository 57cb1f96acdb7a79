-- The rules hold whoever writes, with our messages.
SELECT ml_init();
= 1
INSERT INTO ml_job (kind) VALUES ('noop');
INSERT INTO ml_job (id, kind) VALUES (9, 'noop');
! ml_job gives out its ids itself; leave id out
INSERT INTO ml_job (kind, status) VALUES ('noop', 'completed');
! a job is born queued, with no attempts; leave status and attempt out
UPDATE ml_job SET status = 'completed';
! a job cannot make this change of status; SELECT * FROM ml_move lists those it can
UPDATE ml_job SET kind = 'other';
! what a job is to do never changes; cancel it and submit another
DELETE FROM ml_job;
! a live job cannot be deleted; cancel it with ml_cancel(id) first
INSERT INTO ml_job (kind, spec_json) VALUES ('noop', '[]');
! CHECK constraint failed: spec_json_is_a_json_object
SELECT ml_cancel(1);
= 1
UPDATE ml_job SET status = 'queued';
! a finished job never changes; to run it again use ml_retry(id)
