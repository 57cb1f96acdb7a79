-- pool.sql: what a worker process does to its jobs.
--
-- Each write says id, owner and attempt in its WHERE and gives the id back: no row means "not yours any more".

-- name: waiting_jobs
-- Gives id and priority of due jobs of a kind with at most a given id, best first.
SELECT id, priority
  FROM main.ml_job INDEXED BY ml_job_claim
 WHERE status = 'queued' AND due = 1 AND kind = :kind AND id <= :last
 ORDER BY priority DESC, id
 LIMIT :count;

-- name: claim_jobs
-- Gives the queued jobs of a JSON array of ids to an owner, running and with one attempt more.
UPDATE main.ml_job NOT INDEXED
   SET status = 'running', started_at_ms = :now, owner = :owner, attempt = attempt + 1, message = NULL
 WHERE id IN (SELECT value FROM json_each(:ids)) AND status = 'queued'
RETURNING id, priority, kind, target_name, spec_json, attempt, max_attempts, crashes, timeout_s, backoff_s;

-- name: claim_unread
-- As claim_jobs for one job, without reading its texts. Gives id and attempt.
UPDATE main.ml_job
   SET status = 'running', started_at_ms = :now, owner = :owner, attempt = attempt + 1, message = NULL
 WHERE id = :id AND status = 'queued'
RETURNING id, attempt;

-- name: large_spec
-- Gives the spec of a job that is kept beside its row.
SELECT spec_json FROM main.ml_spec WHERE job_id = :id;

-- name: complete_jobs
-- Ends jobs with their results, given as a JSON array of [id, attempt, metrics]. Gives their ids. One statement for
-- many jobs: running it once per job costs three times as much.
UPDATE main.ml_job NOT INDEXED
   SET status = 'completed', progress = 100, finished_at_ms = :now, stopped_at_ms = :now, metrics_json = ended.metrics
  FROM (SELECT value ->> 0 AS id, value ->> 1 AS attempt, value ->> 2 AS metrics FROM json_each(:endings)) AS ended
 WHERE ml_job.id = ended.id AND ml_job.owner = :owner AND ml_job.attempt = ended.attempt AND ml_job.status = 'running'
RETURNING id;

-- name: fail_job
-- Ends a job with an error. Its body has stopped when :stopped is 1. Gives its id.
UPDATE main.ml_job
   SET status = 'failed', finished_at_ms = :now, stopped_at_ms = CASE WHEN :stopped THEN :now END,
       error_message = :error, message = coalesce(:message, message)
 WHERE id = :id AND owner = :owner AND attempt = :attempt AND status = 'running'
RETURNING id;

-- name: postpone_job
-- Puts a job that failed back until a time, for another attempt. Gives its id.
UPDATE main.ml_job
   SET status = 'queued', owner = NULL, started_at_ms = NULL, progress = 0, run_at_ms = :run_at_ms, due = 0,
       message = :message
 WHERE id = :id AND owner = :owner AND attempt = :attempt AND status = 'running'
RETURNING id;

-- name: release_job
-- Puts a job back whose worker stops; the attempt does not count. Gives its id.
UPDATE main.ml_job
   SET status = 'queued', owner = NULL, started_at_ms = NULL, progress = 0, attempt = attempt - 1, message = NULL
 WHERE id = :id AND owner = :owner AND attempt = :attempt AND status = 'running'
RETURNING id;

-- name: stop_job
-- Notes that the body of a job which is over has ended. Gives its id.
UPDATE main.ml_job
   SET stopped_at_ms = :now
 WHERE id = :id AND owner = :owner AND attempt = :attempt
   AND finished_at_ms IS NOT NULL AND stopped_at_ms IS NULL
RETURNING id;

-- name: note_progress
-- Writes how far a job is and the last message of its handler. Gives its id.
UPDATE main.ml_job
   SET progress = :progress, message = :message
 WHERE id = :id AND owner = :owner AND attempt = :attempt AND status = 'running'
RETURNING id;

-- name: still_held
-- Gives 1 when a job still runs for this owner and attempt.
SELECT 1 FROM main.ml_job WHERE id = :id AND owner = :owner AND attempt = :attempt AND status = 'running';

-- name: held_and_cancelled
-- Gives id and attempt of the owner's jobs that were cancelled while their bodies run.
SELECT id, attempt
  FROM main.ml_job INDEXED BY ml_job_held
 WHERE owner = :owner AND status = 'cancelled' AND owner IS NOT NULL AND stopped_at_ms IS NULL;

-- name: held_jobs
-- Gives id and attempt of the jobs that the owner runs, as the file has it.
SELECT id, attempt
  FROM main.ml_job INDEXED BY ml_job_held
 WHERE owner = :owner AND status = 'running' AND owner IS NOT NULL AND stopped_at_ms IS NULL;

-- name: body_of
-- Gives 1 while a body of the owner runs, as the file has it: of a running job, or of one that is over.
SELECT 1
  FROM main.ml_job INDEXED BY ml_job_held
 WHERE owner = :owner AND owner IS NOT NULL AND stopped_at_ms IS NULL
 LIMIT 1;

-- name: next_due_time
-- Gives the earliest time for which a job waits, or NULL.
SELECT min(run_at_ms) FROM main.ml_job INDEXED BY ml_job_scheduled WHERE status = 'queued' AND due = 0;

-- name: promote_due_jobs
-- Makes at most 1000 jobs whose time has come claimable. Gives their ids.
UPDATE main.ml_job
   SET due = 1
 WHERE id IN (SELECT id FROM main.ml_job INDEXED BY ml_job_scheduled
               WHERE status = 'queued' AND due = 0 AND run_at_ms <= :now
               ORDER BY run_at_ms
               LIMIT 1000)
RETURNING id;

-- name: last_queued_id
-- Gives the highest id of a due queued job of a kind.
SELECT max(id) FROM main.ml_job INDEXED BY ml_job_claim WHERE status = 'queued' AND due = 1 AND kind = :kind;

-- name: add_log_line
-- Keeps a line that a handler logged, behind the others of its attempt: one that was put back may have logged some.
INSERT INTO main.ml_log (job_id, attempt, seq, at_ms, line)
SELECT :id, :attempt,
       coalesce((SELECT max(seq) FROM main.ml_log WHERE job_id = :id AND attempt = :attempt), 0) + 1, :at_ms, :line
 WHERE EXISTS (SELECT 1 FROM main.ml_job WHERE id = :id AND owner = :owner AND attempt = :attempt);

-- name: add_metric
-- Keeps a value that a handler measured.
INSERT INTO main.ml_metric (job_id, attempt, seq, at_ms, name, step, value)
SELECT :id, :attempt,
       coalesce((SELECT max(seq) FROM main.ml_metric WHERE job_id = :id AND attempt = :attempt), 0) + 1,
       :at_ms, :name, :step, :value
 WHERE EXISTS (SELECT 1 FROM main.ml_job WHERE id = :id AND owner = :owner AND attempt = :attempt);

-- name: keep_checkpoint
-- Keeps where a job stands; an older attempt never replaces a newer one.
INSERT INTO main.ml_checkpoint (job_id, attempt, at_ms, value_json)
VALUES (:id, :attempt, :now, :value)
ON CONFLICT (job_id) DO UPDATE
   SET attempt = excluded.attempt, at_ms = excluded.at_ms, value_json = excluded.value_json
 WHERE excluded.attempt >= attempt;

-- name: get_checkpoint
-- Gives where a job stood.
SELECT value_json FROM main.ml_checkpoint WHERE job_id = :id;
