-- workers.sql: the processes that run jobs, and what is done for those that died.

-- name: register_worker
-- Adds a worker process.
INSERT INTO main.ml_worker (id, pid, pid_started, pid_namespace, boot_id, host, threads, started_at_ms,
                            heartbeat_at_ms, heartbeat_boot_ms)
VALUES (:id, :pid, :pid_started, :pid_namespace, :boot_id, :host, :threads, :now, :now, :boot_ms)
ON CONFLICT (id) DO UPDATE
   SET heartbeat_at_ms = excluded.heartbeat_at_ms, heartbeat_boot_ms = excluded.heartbeat_boot_ms;

-- name: register_kind
-- Notes that a worker runs a kind.
INSERT INTO main.ml_worker_kind (kind, worker_id) VALUES (:kind, :id) ON CONFLICT DO NOTHING;

-- name: beat
-- Renews a worker's heartbeat. Gives its id, or no row when somebody took it for dead.
UPDATE main.ml_worker
   SET heartbeat_at_ms = max(heartbeat_at_ms, :now), heartbeat_boot_ms = :boot_ms
 WHERE id = :id
RETURNING id;

-- name: list_workers
-- Gives what tells whether each worker still lives.
SELECT id, pid, pid_started, pid_namespace, boot_id, heartbeat_boot_ms FROM main.ml_worker;

-- name: owners_without_worker
-- Gives owners of jobs that have no row in ml_worker.
SELECT DISTINCT owner
  FROM main.ml_job INDEXED BY ml_job_held
 WHERE owner IS NOT NULL AND stopped_at_ms IS NULL
   AND NOT EXISTS (SELECT 1 FROM main.ml_worker WHERE id = owner);

-- name: requeue_jobs_of
-- Puts the running jobs of a dead worker back, without the traces of the attempt. Gives their ids.
UPDATE main.ml_job INDEXED BY ml_job_held
   SET status = 'queued', owner = NULL, started_at_ms = NULL, progress = 0, error_message = NULL, metrics_json = NULL,
       crashes = crashes + 1, message = 'its worker process died; queued again'
 WHERE owner = :owner AND status = 'running' AND owner IS NOT NULL AND stopped_at_ms IS NULL
RETURNING id;

-- name: stop_jobs_of
-- Notes that the bodies of a dead worker's finished jobs have ended. Gives their ids.
UPDATE main.ml_job INDEXED BY ml_job_held
   SET stopped_at_ms = :now
 WHERE owner = :owner AND status IN ('cancelled', 'failed') AND owner IS NOT NULL AND stopped_at_ms IS NULL
RETURNING id;

-- name: forget_worker
-- Removes a worker.
DELETE FROM main.ml_worker WHERE id = :id;

-- name: forget_kinds
-- Removes what a worker runs.
DELETE FROM main.ml_worker_kind WHERE worker_id = :id;
