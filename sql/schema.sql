-- schema.sql: the queue's tables, and the rules that hold whoever writes to them.
--
-- This is step 1 of the schema. Later steps stand in migrations/, each in a file of its own; ml_schema
-- records which of them a file has. A bare shell can run this text as it stands:
--
--     sqlite3 shop.db < sql/schema.sql
--
-- The tables
--
--     ml_job            a job: what to do, where it stands, what came of it
--     ml_spec           the specs that are too large to be rewritten at each change of a job
--     ml_move           the changes of status that a job can make; ml_job_changes refuses the others
--     ml_worker         the processes that run jobs, and ml_worker_kind, what each can run
--     ml_log            what handlers wrote, and ml_metric, what they measured
--     ml_checkpoint     where a job goes on after an interruption
--     ml_model          models by name; ml_model_version, their versions; ml_model_content, their bytes
--     ml_schema         the steps that were applied
--
-- The life of a job: a job is born queued. A worker claims it (running, in the same transaction that gives it
-- an owner and counts the attempt) and finishes it (completed, failed), or gives it back (queued). A user may
-- cancel it until then. A finished row never changes again, except that stopped_at_ms is filled, once, when the
-- body of a cancelled or timed-out job has really ended. So "live" is: stopped_at_ms IS NULL.
--
-- Names are qualified: a TEMP table of the same name must not catch anything. Times are milliseconds since 1970
-- (UTC). Everything here runs on SQLite 3.38 and later.

SAVEPOINT ml_step;

CREATE TABLE main.ml_schema (
  version       INTEGER PRIMARY KEY,
  name          TEXT NOT NULL,
  applied_at_ms INTEGER NOT NULL
) STRICT;

CREATE TABLE main.ml_move (
  was     TEXT NOT NULL,
  becomes TEXT NOT NULL,
  why     TEXT NOT NULL,
  PRIMARY KEY (was, becomes)
) STRICT, WITHOUT ROWID;

INSERT INTO main.ml_move (was, becomes, why) VALUES
  ('queued',  'running',   'a worker claimed it'),
  ('queued',  'cancelled', 'a user cancelled it before it began'),
  ('running', 'completed', 'its handler returned'),
  ('running', 'failed',    'its handler raised, or its time was up'),
  ('running', 'cancelled', 'a user cancelled it'),
  ('running', 'queued',    'its worker stopped or died, or it will be tried again');

CREATE TABLE main.ml_job (
  id             INTEGER PRIMARY KEY AUTOINCREMENT,
  kind           TEXT NOT NULL
                 CONSTRAINT kind_has_1_to_200_characters CHECK (length(kind) BETWEEN 1 AND 200)
                 CONSTRAINT kind_has_no_nul_character CHECK (NOT instr(kind, char(0))),
  target_name    TEXT NOT NULL DEFAULT ''
                 CONSTRAINT target_name_has_at_most_1000_characters CHECK (length(target_name) <= 1000)
                 CONSTRAINT target_name_has_no_nul_character CHECK (NOT instr(target_name, char(0))),
  status         TEXT NOT NULL DEFAULT 'queued'
                 CONSTRAINT status_is_known CHECK (status IN ('queued', 'running', 'completed', 'failed', 'cancelled')),
  progress       INTEGER NOT NULL DEFAULT 0
                 CONSTRAINT progress_is_0_to_100 CHECK (progress BETWEEN 0 AND 100),
  created_at_ms  INTEGER NOT NULL DEFAULT (CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)),
  started_at_ms  INTEGER,
  finished_at_ms INTEGER,
  error_message  TEXT,
  spec_json      TEXT
                 CONSTRAINT spec_json_is_a_json_object CHECK (
                   spec_json IS NULL OR spec_json = '{}'
                   OR CASE WHEN json_valid(spec_json) AND NOT instr(spec_json, char(0))
                           THEN json_type(spec_json) = 'object' ELSE 0 END)
                 CONSTRAINT spec_json_has_at_most_1048576_bytes CHECK (length(CAST(spec_json AS BLOB)) <= 1048576),
  metrics_json   TEXT
                 CONSTRAINT metrics_json_is_json CHECK (metrics_json IS NULL OR json_valid(metrics_json)),
  priority       INTEGER NOT NULL DEFAULT 0,
  run_at_ms      INTEGER
                 CONSTRAINT run_at_ms_is_in_the_years_1970_to_9999 CHECK (run_at_ms BETWEEN 0 AND 253402300799999),
  due            INTEGER NOT NULL DEFAULT 1
                 CONSTRAINT due_is_0_or_1 CHECK (due IN (0, 1) AND (due = 1 OR run_at_ms IS NOT NULL)),
  attempt        INTEGER NOT NULL DEFAULT 0
                 CONSTRAINT attempt_is_not_negative CHECK (attempt >= 0),
  max_attempts   INTEGER NOT NULL DEFAULT 1
                 CONSTRAINT max_attempts_is_1_to_1000 CHECK (max_attempts BETWEEN 1 AND 1000),
  crashes        INTEGER NOT NULL DEFAULT 0,
  owner          TEXT,
  stopped_at_ms  INTEGER,
  message        TEXT,
  tag            TEXT,
  retry_of       INTEGER,
  unique_key     TEXT
                 CONSTRAINT unique_key_has_1_to_1000_characters CHECK (length(unique_key) BETWEEN 1 AND 1000),
  timeout_s      REAL
                 CONSTRAINT timeout_s_is_positive CHECK (timeout_s > 0),
  backoff_s      REAL NOT NULL DEFAULT 1
                 CONSTRAINT backoff_s_is_not_negative CHECK (backoff_s >= 0),
  CONSTRAINT a_queued_job_has_not_begun CHECK (status <> 'queued' OR
    (owner IS NULL AND started_at_ms IS NULL AND finished_at_ms IS NULL AND stopped_at_ms IS NULL
     AND error_message IS NULL AND metrics_json IS NULL AND progress = 0)),
  CONSTRAINT a_running_job_has_an_owner CHECK (status <> 'running' OR
    (owner IS NOT NULL AND started_at_ms IS NOT NULL AND finished_at_ms IS NULL AND stopped_at_ms IS NULL)),
  CONSTRAINT a_finished_job_says_when CHECK (status IN ('queued', 'running') OR finished_at_ms IS NOT NULL),
  CONSTRAINT a_completed_job_is_at_100_and_over CHECK (status <> 'completed' OR
    (progress = 100 AND stopped_at_ms IS NOT NULL AND error_message IS NULL)),
  CONSTRAINT a_failed_job_says_why CHECK (status <> 'failed' OR error_message IS NOT NULL)
) STRICT;

CREATE TABLE main.ml_spec (
  job_id    INTEGER PRIMARY KEY,
  spec_json TEXT NOT NULL
) STRICT;

-- What a claim reads: due jobs of a kind, best priority first, then oldest. Nothing else stands in it.
CREATE INDEX main.ml_job_claim ON ml_job (kind, priority DESC, id) WHERE status = 'queued' AND due = 1;

-- Jobs that wait for their time.
CREATE INDEX main.ml_job_scheduled ON ml_job (run_at_ms) WHERE status = 'queued' AND due = 0;

-- Whose bodies run, or have not ended yet, by owner.
CREATE INDEX main.ml_job_held ON ml_job (owner, status) WHERE owner IS NOT NULL AND stopped_at_ms IS NULL;

CREATE UNIQUE INDEX main.ml_job_unique ON ml_job (kind, unique_key) WHERE unique_key IS NOT NULL AND stopped_at_ms IS NULL;

-- One list per status, so that listing a few jobs of a status never reads the others.
CREATE INDEX main.ml_job_queued    ON ml_job (id) WHERE status = 'queued';
CREATE INDEX main.ml_job_running   ON ml_job (id) WHERE status = 'running';
CREATE INDEX main.ml_job_completed ON ml_job (id) WHERE status = 'completed';
CREATE INDEX main.ml_job_failed    ON ml_job (id) WHERE status = 'failed';
CREATE INDEX main.ml_job_cancelled ON ml_job (id) WHERE status = 'cancelled';

-- NEW.id is -1 here when the statement gave none.
CREATE TRIGGER main.ml_job_is_born BEFORE INSERT ON ml_job
BEGIN
  SELECT CASE
    WHEN NEW.id <> -1 THEN
      RAISE(ABORT, 'ml_job gives out its ids itself; leave id out')
    WHEN NEW.status <> 'queued' OR NEW.attempt <> 0 OR NEW.crashes <> 0 THEN
      RAISE(ABORT, 'a job is born queued, with no attempts; leave status and attempt out')
    WHEN NEW.unique_key IS NOT NULL AND EXISTS (
      SELECT 1 FROM ml_job AS other INDEXED BY ml_job_unique
       WHERE other.kind = NEW.kind AND other.unique_key = NEW.unique_key
         AND other.unique_key IS NOT NULL AND other.stopped_at_ms IS NULL) THEN
      RAISE(ABORT, 'a live job of this kind has this unique key; wait for it or cancel it')
  END;
END;

CREATE TRIGGER main.ml_job_was_born AFTER INSERT ON ml_job
WHEN length(NEW.spec_json) > 1000 OR (NEW.run_at_ms IS NOT NULL AND NEW.due = 1) OR NEW.id < 1
BEGIN
  SELECT RAISE(ABORT, 'ml_job gives out its ids itself; leave id out') WHERE NEW.id < 1;
  INSERT INTO ml_spec (job_id, spec_json)
  SELECT NEW.id, NEW.spec_json WHERE length(NEW.spec_json) > 1000;
  UPDATE ml_job
     SET spec_json = CASE WHEN length(NEW.spec_json) > 1000 THEN NULL ELSE spec_json END,
         due = (NEW.run_at_ms IS NULL)
   WHERE id = NEW.id;
END;

CREATE TRIGGER main.ml_job_changes BEFORE UPDATE ON ml_job
BEGIN
  SELECT CASE
    WHEN OLD.finished_at_ms IS NOT NULL AND NOT (
      OLD.stopped_at_ms IS NULL AND NEW.stopped_at_ms IS NOT NULL
      AND NEW.status = OLD.status AND NEW.progress = OLD.progress
      AND NEW.started_at_ms IS OLD.started_at_ms AND NEW.finished_at_ms IS OLD.finished_at_ms
      AND NEW.error_message IS OLD.error_message AND NEW.metrics_json IS OLD.metrics_json
      AND NEW.priority = OLD.priority AND NEW.run_at_ms IS OLD.run_at_ms AND NEW.due = OLD.due
      AND NEW.attempt = OLD.attempt AND NEW.max_attempts = OLD.max_attempts AND NEW.crashes = OLD.crashes
      AND NEW.owner IS OLD.owner AND NEW.message IS OLD.message AND NEW.tag IS OLD.tag
      AND NEW.timeout_s IS OLD.timeout_s AND NEW.backoff_s IS OLD.backoff_s) THEN
      RAISE(ABORT, 'a finished job never changes; to run it again use ml_retry(id)')
    WHEN NEW.status <> OLD.status AND NOT EXISTS (
      SELECT 1 FROM ml_move WHERE was = OLD.status AND becomes = NEW.status) THEN
      RAISE(ABORT, 'a job cannot make this change of status; SELECT * FROM ml_move lists those it can')
    WHEN NEW.id <> OLD.id OR NEW.kind <> OLD.kind OR NEW.target_name <> OLD.target_name
      OR NEW.created_at_ms <> OLD.created_at_ms OR NEW.retry_of IS NOT OLD.retry_of
      OR NEW.unique_key IS NOT OLD.unique_key
      OR (NEW.spec_json IS NOT OLD.spec_json AND NOT (
        NEW.spec_json IS NULL AND EXISTS (SELECT 1 FROM ml_spec WHERE job_id = OLD.id))) THEN
      RAISE(ABORT, 'what a job is to do never changes; cancel it and submit another')
  END;
END;

CREATE TRIGGER main.ml_job_goes BEFORE DELETE ON ml_job
BEGIN
  SELECT RAISE(ABORT, 'a live job cannot be deleted; cancel it with ml_cancel(id) first')
   WHERE OLD.stopped_at_ms IS NULL;
END;

CREATE TRIGGER main.ml_job_went AFTER DELETE ON ml_job
BEGIN
  DELETE FROM ml_log WHERE job_id = OLD.id;
  DELETE FROM ml_metric WHERE job_id = OLD.id;
  DELETE FROM ml_checkpoint WHERE job_id = OLD.id;
  DELETE FROM ml_spec WHERE job_id = OLD.id;
END;

-- ml_spec is filled by ml_job_was_born and emptied by ml_job_went, and by nobody else.
CREATE TRIGGER main.ml_spec_comes BEFORE INSERT ON ml_spec
WHEN NOT EXISTS (SELECT 1 FROM ml_job WHERE id = NEW.job_id AND length(spec_json) > 1000)
BEGIN
  SELECT RAISE(ABORT, 'what a job is to do never changes; cancel it and submit another');
END;

CREATE TRIGGER main.ml_spec_changes BEFORE UPDATE ON ml_spec
BEGIN
  SELECT RAISE(ABORT, 'what a job is to do never changes; cancel it and submit another');
END;

CREATE TRIGGER main.ml_spec_goes BEFORE DELETE ON ml_spec
WHEN EXISTS (SELECT 1 FROM ml_job WHERE id = OLD.job_id)
BEGIN
  SELECT RAISE(ABORT, 'what a job is to do never changes; cancel it and submit another');
END;

-- A process that runs jobs. The id is new at each start; pid, pid_started and the two namespaces of pids (the boot,
-- and the container) tell whether it still lives. heartbeat_boot_ms is on the clock that counts from the boot.
CREATE TABLE main.ml_worker (
  id                TEXT PRIMARY KEY,
  pid               INTEGER NOT NULL,
  pid_started       INTEGER NOT NULL,
  pid_namespace     TEXT NOT NULL,
  boot_id           TEXT NOT NULL,
  host              TEXT NOT NULL,
  threads           INTEGER NOT NULL,
  started_at_ms     INTEGER NOT NULL,
  heartbeat_at_ms   INTEGER NOT NULL,
  heartbeat_boot_ms INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE main.ml_worker_kind (
  kind      TEXT NOT NULL,
  worker_id TEXT NOT NULL,
  PRIMARY KEY (kind, worker_id)
) STRICT, WITHOUT ROWID;

CREATE TABLE main.ml_log (
  job_id  INTEGER NOT NULL,
  attempt INTEGER NOT NULL,
  seq     INTEGER NOT NULL,
  at_ms   INTEGER NOT NULL,
  line    TEXT NOT NULL,
  PRIMARY KEY (job_id, attempt, seq)
) STRICT, WITHOUT ROWID;

CREATE TABLE main.ml_metric (
  job_id  INTEGER NOT NULL,
  attempt INTEGER NOT NULL,
  seq     INTEGER NOT NULL,
  at_ms   INTEGER NOT NULL,
  name    TEXT NOT NULL,
  step    INTEGER,
  value   REAL,
  PRIMARY KEY (job_id, attempt, seq)
) STRICT, WITHOUT ROWID;

CREATE TABLE main.ml_checkpoint (
  job_id     INTEGER PRIMARY KEY,
  attempt    INTEGER NOT NULL,
  at_ms      INTEGER NOT NULL,
  value_json TEXT NOT NULL
) STRICT;

CREATE TABLE main.ml_model (
  name           TEXT PRIMARY KEY,
  active_version INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE main.ml_model_version (
  name          TEXT NOT NULL,
  version       INTEGER NOT NULL,
  job_id        INTEGER,
  created_at_ms INTEGER NOT NULL,
  format        TEXT NOT NULL,
  digest        TEXT NOT NULL,
  algorithm     TEXT NOT NULL,
  task          TEXT NOT NULL,
  target        TEXT NOT NULL,
  features_json TEXT NOT NULL CONSTRAINT features_json_is_json CHECK (json_valid(features_json)),
  query         TEXT NOT NULL,
  tables_json   TEXT NOT NULL CONSTRAINT tables_json_is_json CHECK (json_valid(tables_json)),
  details_json  TEXT NOT NULL CONSTRAINT details_json_is_json CHECK (json_valid(details_json)),
  metrics_json  TEXT CONSTRAINT metrics_json_is_json CHECK (metrics_json IS NULL OR json_valid(metrics_json)),
  PRIMARY KEY (name, version)
) STRICT, WITHOUT ROWID;

-- A table with a rowid, so that the bytes of one model lie together and are read in one go.
CREATE TABLE main.ml_model_content (
  name    TEXT NOT NULL,
  version INTEGER NOT NULL,
  content BLOB NOT NULL,
  PRIMARY KEY (name, version)
) STRICT;

CREATE VIEW main.ml_job_list AS
SELECT job.id, job.kind, job.target_name, job.status, job.progress,
       job.created_at_ms, job.started_at_ms, job.finished_at_ms, job.error_message,
       coalesce(job.spec_json, (SELECT spec_json FROM ml_spec WHERE job_id = job.id), '{}') AS spec_json,
       job.metrics_json, job.priority, job.run_at_ms, job.attempt, job.max_attempts, job.owner, job.stopped_at_ms,
       CASE WHEN job.finished_at_ms >= job.started_at_ms
            THEN job.finished_at_ms - job.started_at_ms END AS duration_ms,
       CASE
         WHEN job.finished_at_ms IS NOT NULL AND job.stopped_at_ms IS NULL THEN
           coalesce(job.message || '; ', '') || 'its handler has not stopped yet'
         WHEN job.status <> 'queued' THEN job.message
         WHEN job.due = 0 AND job.run_at_ms > (julianday('now') - 2440587.5) * 86400000 THEN
           coalesce(job.message || '; ', '')
           || CASE WHEN job.attempt > 0 THEN 'waiting for a retry at ' ELSE 'waiting until ' END
           || strftime('%Y-%m-%d %H:%M:%S', job.run_at_ms / 1000, 'unixepoch') || ' UTC'
         WHEN NOT EXISTS (
           SELECT 1 FROM ml_worker
            WHERE heartbeat_at_ms > (julianday('now') - 2440587.5) * 86400000 - 60000) THEN
           'no worker is running; start one with: mldb work FILE'
         WHEN NOT EXISTS (
           SELECT 1 FROM ml_worker_kind AS known
             JOIN ml_worker AS worker ON worker.id = known.worker_id
            WHERE known.kind = job.kind
              AND worker.heartbeat_at_ms > (julianday('now') - 2440587.5) * 86400000 - 60000) THEN
           'no running worker handles kind ' || job.kind
         ELSE job.message
       END AS message,
       job.tag, job.retry_of
  FROM ml_job AS job;

CREATE VIEW main.ml_job_log AS
SELECT job_id, at_ms, attempt, line FROM ml_log;

CREATE VIEW main.ml_job_metrics AS
SELECT job_id, at_ms, attempt, name, step, value FROM ml_metric;

CREATE VIEW main.ml_workers AS
SELECT worker.id, worker.pid, worker.host, worker.started_at_ms, worker.heartbeat_at_ms,
       round((julianday('now') - 2440587.5) * 86400 - worker.heartbeat_at_ms / 1000.0, 1) AS heartbeat_age_s,
       worker.threads,
       (SELECT group_concat(kind, ', ') FROM ml_worker_kind WHERE worker_id = worker.id) AS kinds,
       (SELECT count(*) FROM ml_job WHERE owner = worker.id AND stopped_at_ms IS NULL) AS running
  FROM ml_worker AS worker;

CREATE VIEW main.ml_models AS
SELECT model.name, model.active_version, version.algorithm, version.task, version.target, version.metrics_json,
       version.created_at_ms, version.job_id,
       (SELECT count(*) FROM ml_model_version AS other WHERE other.name = model.name) AS versions
  FROM ml_model AS model
  LEFT JOIN ml_model_version AS version ON version.name = model.name AND version.version = model.active_version;

INSERT INTO main.ml_schema (version, name, applied_at_ms)
VALUES (1, 'queue', CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER));

RELEASE ml_step;
