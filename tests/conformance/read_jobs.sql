-- Reads of ML_JOBS, pushed down or not, give what the plain view gives.
SELECT ml_init();
= 1
WITH n(i) AS (VALUES (1) UNION ALL SELECT i + 1 FROM n WHERE i < 300)
INSERT INTO ML_JOBS (kind, target_name, priority) SELECT iif(i % 3, 'noop', 'other'), 't' || i % 5, i % 7 FROM n;
UPDATE ml_job SET status = 'running', owner = 'w', started_at_ms = 1000, attempt = 1 WHERE id % 4 = 0;
UPDATE ml_job SET status = 'failed', error_message = 'it broke', finished_at_ms = 2500, stopped_at_ms = 2500 WHERE id % 8 = 0;
UPDATE ml_job SET status = 'cancelled', finished_at_ms = 2500, stopped_at_ms = 2500 WHERE id % 10 = 1;
SELECT count(*), sum(id), min(id), max(id) FROM ML_JOBS;
= 300|45150|1|300
SELECT status, count(*) FROM ML_JOBS GROUP BY 1 ORDER BY 1;
= cancelled|30
= failed|37
= queued|195
= running|38
SELECT id, status FROM ML_JOBS WHERE id = 8;
= 8|failed
SELECT id, status, duration_ms, error_message FROM ML_JOBS WHERE rowid = 8;
= 8|failed|1500|it broke
SELECT id FROM ML_JOBS WHERE id = '8';
= 8
SELECT id FROM ML_JOBS WHERE id = 8.0;
= 8
SELECT id FROM ML_JOBS WHERE id = 8.5;
SELECT id FROM ML_JOBS WHERE id = NULL;
SELECT id FROM ML_JOBS WHERE id = x'38';
SELECT id FROM ML_JOBS WHERE id > 297;
= 298
= 299
= 300
SELECT id FROM ML_JOBS WHERE id >= 297.5 ORDER BY id DESC;
= 300
= 299
= 298
SELECT id FROM ML_JOBS WHERE id < 3 AND id > -5;
= 1
= 2
SELECT id FROM ML_JOBS WHERE id <= 2.5;
= 1
= 2
SELECT id FROM ML_JOBS WHERE id BETWEEN 5 AND 7 ORDER BY id DESC;
= 7
= 6
= 5
SELECT count(*) FROM ML_JOBS WHERE id > 9223372036854775806;
= 0
SELECT count(*) FROM ML_JOBS WHERE id > 9223372036854775807;
= 0
SELECT count(*) FROM ML_JOBS WHERE id >= -9223372036854775808;
= 300
SELECT count(*) FROM ML_JOBS WHERE id < 1e300;
= 300
SELECT count(*) FROM ML_JOBS WHERE id > 1e300;
= 0
SELECT count(*) FROM ML_JOBS WHERE id > 'x';
= 0
SELECT count(*), sum(id) FROM ML_JOBS WHERE status = 'queued';
= 195|29370
SELECT count(*), sum(id) FROM ML_JOBS WHERE status IN ('failed', 'cancelled', 'nonsense', NULL);
= 67|10004
SELECT count(*) FROM ML_JOBS WHERE status IN (SELECT 'running');
= 38
SELECT count(*) FROM ML_JOBS WHERE status = 'nonsense';
= 0
SELECT count(*) FROM ML_JOBS WHERE status = 'QUEUED' COLLATE NOCASE;
= 195
SELECT count(*) FROM ML_JOBS WHERE status <> 'queued';
= 105
SELECT count(*) FROM ML_JOBS WHERE status = NULL;
= 0
SELECT count(*) FROM ML_JOBS WHERE status = 3;
= 0
SELECT id FROM ML_JOBS WHERE status = 'failed' ORDER BY id LIMIT 3;
= 8
= 16
= 24
SELECT id FROM ML_JOBS WHERE status = 'failed' ORDER BY id DESC LIMIT 3;
= 296
= 288
= 280
SELECT id FROM ML_JOBS WHERE status IN ('failed', 'running') ORDER BY id DESC LIMIT 4;
= 300
= 296
= 292
= 288
SELECT id FROM ML_JOBS WHERE status IN ('failed', 'running') AND status = 'running' ORDER BY id LIMIT 2;
= 4
= 12
SELECT id FROM ML_JOBS WHERE status = 'running' AND status IN ('failed', 'running') ORDER BY id LIMIT 2;
= 4
= 12
SELECT id FROM ML_JOBS WHERE status IN ('running', 'queued') AND status IN ('failed', 'running') ORDER BY id LIMIT 2;
= 4
= 12
SELECT id FROM ML_JOBS WHERE status IN ('failed', 'running') LIMIT 2 OFFSET 3;
= 16
= 20
SELECT id FROM ML_JOBS WHERE kind = 'other' AND target_name = 't0' AND status = 'queued' ORDER BY id LIMIT 3;
SELECT id FROM ML_JOBS WHERE kind = 'other' AND target_name = 't0' ORDER BY id DESC LIMIT 2;
SELECT count(*) FROM ML_JOBS WHERE kind IN ('other', 'noop');
= 300
SELECT count(*) FROM ML_JOBS WHERE kind = 5;
= 0
SELECT count(*) FROM ML_JOBS WHERE kind = x'00';
= 0
SELECT id FROM ML_JOBS LIMIT 2;
= 1
= 2
SELECT id FROM ML_JOBS ORDER BY id LIMIT 0;
SELECT count(*) FROM (SELECT id FROM ML_JOBS ORDER BY id LIMIT -1);
= 300
SELECT id FROM ML_JOBS ORDER BY id LIMIT 2 OFFSET 4;
= 5
= 6
SELECT id, priority FROM ML_JOBS WHERE id < 20 ORDER BY priority DESC, id LIMIT 3;
= 6|6
= 13|6
= 5|5
SELECT a.id, b.id FROM ML_JOBS AS a JOIN ML_JOBS AS b ON b.id = a.id + 1 WHERE a.id < 3 ORDER BY a.id;
= 1|2
= 2|3
SELECT id FROM ML_JOBS WHERE id IN (3, 1, 2, 999) ORDER BY id;
= 1
= 2
= 3
SELECT count(*) FROM (SELECT * FROM ML_JOBS EXCEPT SELECT * FROM ML_JOB_LIST);
= 0
SELECT count(*) FROM (SELECT id, kind, target_name, status, progress, created_at_ms, started_at_ms, finished_at_ms, error_message, metrics_json, priority, run_at_ms, attempt, max_attempts, owner, stopped_at_ms, tag, retry_of FROM ML_JOBS EXCEPT SELECT id, kind, target_name, status, progress, created_at_ms, started_at_ms, finished_at_ms, error_message, metrics_json, priority, run_at_ms, attempt, max_attempts, owner, stopped_at_ms, tag, retry_of FROM ML_JOB_LIST);
= 0
SELECT count(*) FROM (SELECT * FROM ML_JOB_LIST EXCEPT SELECT * FROM ML_JOBS);
= 0
SELECT count(spec_json), count(message), count(duration_ms) FROM ML_JOBS;
= 300|195|37
SELECT id, typeof(id), typeof(progress), typeof(started_at_ms), typeof(spec_json) FROM ML_JOBS WHERE id = 1;
= 1|integer|integer|null|text
SELECT sum(ml_cancel(id)) FROM ML_JOBS WHERE status = 'queued';
= 195
SELECT status, count(*) FROM ML_JOBS GROUP BY 1 ORDER BY 1;
= cancelled|225
= failed|37
= running|38
