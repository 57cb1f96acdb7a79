-- jobs.sql: what a user can do to the queue.
--
-- Each statement stands under its name and a sentence on what it does and gives. Every front end runs these texts
-- unchanged: named parameters only, and nothing newer than SQLite 3.38. Whether a job may move from one status to
-- another is decided in schema.sql.

-- name: submit_job
-- Adds a queued job without options. Gives its id.
INSERT INTO main.ml_job (kind, target_name, spec_json, created_at_ms)
VALUES (:kind, :target, :spec, :now)
RETURNING id;

-- name: submit_job_with_options
-- Adds a queued job with the options that read_options gives. Gives its id.
INSERT INTO main.ml_job (kind, target_name, spec_json, created_at_ms, priority, run_at_ms, due, max_attempts,
                         backoff_s, timeout_s, unique_key, tag)
VALUES (:kind, :target, :spec, :now, :priority, :run_at_ms, :run_at_ms IS NULL, :max_attempts,
        :backoff_s, :timeout_s, :unique_key, :tag)
RETURNING id;

-- name: as_text
-- Gives a number as a column of texts keeps it.
SELECT CAST(:value AS TEXT);

-- name: live_job_with_key
-- Gives the id of the live job of a kind that has a unique key.
SELECT id
  FROM main.ml_job INDEXED BY ml_job_unique
 WHERE kind = :kind AND unique_key = :unique_key AND unique_key IS NOT NULL AND stopped_at_ms IS NULL;

-- name: cancel_job
-- Cancels a job that is not over. Gives its id, or no row when it is unknown or over.
UPDATE main.ml_job
   SET status = 'cancelled',
       finished_at_ms = :now,
       stopped_at_ms = CASE status WHEN 'queued' THEN :now END
 WHERE id = :id AND status IN ('queued', 'running')
RETURNING id;

-- name: retry_job
-- Adds a job like a terminal one. Gives the new id, or no row when the old one is unknown or live.
INSERT INTO main.ml_job (kind, target_name, spec_json, created_at_ms, priority, max_attempts, backoff_s, timeout_s,
                         unique_key, tag, retry_of)
SELECT kind, target_name,
       coalesce(spec_json, (SELECT spec_json FROM main.ml_spec WHERE job_id = :id)),
       :now, priority, max_attempts, backoff_s, timeout_s, unique_key, tag, id
  FROM main.ml_job
 WHERE id = :id AND stopped_at_ms IS NOT NULL
RETURNING id;

-- name: job_status
-- Gives the status of a job, and 1 when its body has ended or never began.
SELECT status, stopped_at_ms IS NOT NULL FROM main.ml_job WHERE id = :id;

-- name: old_jobs
-- Gives ids of terminal jobs that finished at or before a time, oldest id first, beyond an id.
SELECT id
  FROM main.ml_job
 WHERE id > :after AND stopped_at_ms IS NOT NULL AND finished_at_ms <= :before
 ORDER BY id
 LIMIT :count;

-- name: delete_jobs
-- Deletes the jobs of a JSON array of ids, with all that belongs to them; fails whole when one is live. Gives their ids.
DELETE FROM main.ml_job WHERE id IN (SELECT value FROM json_each(:ids)) RETURNING id;

-- name: last_job_id
-- Gives the highest id that a job in the file has.
SELECT max(id) FROM main.ml_job;

-- name: job_columns
-- Gives names and types of the columns of ML_JOBS, in order.
SELECT name, type FROM pragma_table_info('ml_job_list', 'main');

-- name: get_job
-- Gives one job.
SELECT * FROM main.ml_job_list AS job WHERE job.id = :id;

-- name: list_jobs_up
-- Gives jobs of a range of ids, lowest first; kind and target_name filter when they are not NULL.
SELECT *
  FROM main.ml_job_list AS job
 WHERE job.id BETWEEN :first AND :last
   AND (:kind IS NULL OR job.kind = :kind)
   AND (:target_name IS NULL OR job.target_name = :target_name)
 ORDER BY job.id
 LIMIT :count;

-- name: scan_jobs_up
-- As list_jobs_up, but with NULL for the columns that cost something to make: spec_json, duration_ms and message.
SELECT id, kind, target_name, status, progress, created_at_ms, started_at_ms, finished_at_ms, error_message,
       NULL AS spec_json, metrics_json, priority, run_at_ms, attempt, max_attempts, owner, stopped_at_ms,
       NULL AS duration_ms, NULL AS message, tag, retry_of
  FROM main.ml_job AS job
 WHERE job.id BETWEEN :first AND :last
   AND (:kind IS NULL OR job.kind = :kind)
   AND (:target_name IS NULL OR job.target_name = :target_name)
 ORDER BY job.id
 LIMIT :count;

-- name: list_jobs_down
-- Gives jobs of a range of ids, highest first; kind and target_name filter when they are not NULL.
SELECT *
  FROM main.ml_job_list AS job
 WHERE job.id BETWEEN :first AND :last
   AND (:kind IS NULL OR job.kind = :kind)
   AND (:target_name IS NULL OR job.target_name = :target_name)
 ORDER BY job.id DESC
 LIMIT :count;

-- name: pick_jobs_up
-- Gives ids of jobs whose status is in a JSON array, lowest first, within a range of ids. A status that is
-- not asked for has an empty range, so that its jobs are not read.
SELECT id FROM main.ml_job INDEXED BY ml_job_queued
 WHERE status = 'queued' AND id <= :last
   AND id >= iif(instr(:statuses, '"queued"'), :first, 9223372036854775807)
UNION ALL
SELECT id FROM main.ml_job INDEXED BY ml_job_running
 WHERE status = 'running' AND id <= :last
   AND id >= iif(instr(:statuses, '"running"'), :first, 9223372036854775807)
UNION ALL
SELECT id FROM main.ml_job INDEXED BY ml_job_completed
 WHERE status = 'completed' AND id <= :last
   AND id >= iif(instr(:statuses, '"completed"'), :first, 9223372036854775807)
UNION ALL
SELECT id FROM main.ml_job INDEXED BY ml_job_failed
 WHERE status = 'failed' AND id <= :last
   AND id >= iif(instr(:statuses, '"failed"'), :first, 9223372036854775807)
UNION ALL
SELECT id FROM main.ml_job INDEXED BY ml_job_cancelled
 WHERE status = 'cancelled' AND id <= :last
   AND id >= iif(instr(:statuses, '"cancelled"'), :first, 9223372036854775807)
 ORDER BY id
 LIMIT :count;

-- name: pick_jobs_down
-- Gives ids of jobs whose status is in a JSON array, highest first, within a range of ids. See pick_jobs_up.
SELECT id FROM main.ml_job INDEXED BY ml_job_queued
 WHERE status = 'queued' AND id <= :last
   AND id >= iif(instr(:statuses, '"queued"'), :first, 9223372036854775807)
UNION ALL
SELECT id FROM main.ml_job INDEXED BY ml_job_running
 WHERE status = 'running' AND id <= :last
   AND id >= iif(instr(:statuses, '"running"'), :first, 9223372036854775807)
UNION ALL
SELECT id FROM main.ml_job INDEXED BY ml_job_completed
 WHERE status = 'completed' AND id <= :last
   AND id >= iif(instr(:statuses, '"completed"'), :first, 9223372036854775807)
UNION ALL
SELECT id FROM main.ml_job INDEXED BY ml_job_failed
 WHERE status = 'failed' AND id <= :last
   AND id >= iif(instr(:statuses, '"failed"'), :first, 9223372036854775807)
UNION ALL
SELECT id FROM main.ml_job INDEXED BY ml_job_cancelled
 WHERE status = 'cancelled' AND id <= :last
   AND id >= iif(instr(:statuses, '"cancelled"'), :first, 9223372036854775807)
 ORDER BY id DESC
 LIMIT :count;

-- name: list_picked_jobs
-- Gives the jobs of a JSON array of ids, lowest first; kind and target_name filter when they are not NULL.
SELECT *
  FROM main.ml_job_list AS job
 WHERE job.id IN (SELECT value FROM json_each(:ids))
   AND (:kind IS NULL OR job.kind = :kind)
   AND (:target_name IS NULL OR job.target_name = :target_name)
 ORDER BY job.id;

-- name: list_picked_jobs_down
-- As list_picked_jobs, highest first.
SELECT *
  FROM main.ml_job_list AS job
 WHERE job.id IN (SELECT value FROM json_each(:ids))
   AND (:kind IS NULL OR job.kind = :kind)
   AND (:target_name IS NULL OR job.target_name = :target_name)
 ORDER BY job.id DESC;
