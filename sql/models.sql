-- models.sql: models and their versions.

-- name: next_model_version
-- Gives the number that the next version of a model gets.
SELECT coalesce(max(version), 0) + 1 FROM main.ml_model_version WHERE name = :name;

-- name: add_model_version
-- Keeps a version of a model.
INSERT INTO main.ml_model_version (name, version, job_id, created_at_ms, format, digest, algorithm, task, target,
                                   features_json, query, tables_json, details_json, metrics_json)
VALUES (:name, :version, :job_id, :now, :format, :digest, :algorithm, :task, :target,
        :features, :query, :tables, :details, :metrics);

-- name: add_model_content
-- Keeps the bytes of a version.
INSERT INTO main.ml_model_content (name, version, content) VALUES (:name, :version, :content);

-- name: activate_model
-- Makes a version the one that predictions use.
INSERT INTO main.ml_model (name, active_version) VALUES (:name, :version)
ON CONFLICT (name) DO UPDATE SET active_version = excluded.active_version;

-- name: active_version
-- Gives number and digest of the version that predictions use.
SELECT version.version, version.digest
  FROM main.ml_model AS model
  JOIN main.ml_model_version AS version ON version.name = model.name AND version.version = model.active_version
 WHERE model.name = :name;

-- name: model_version
-- Gives number and digest of a version.
SELECT version, digest FROM main.ml_model_version WHERE name = :name AND version = :version;

-- name: load_model
-- Gives all of a version.
SELECT version.name, version.version, version.digest, version.format, content.content, version.algorithm, version.task,
       version.target, version.features_json, version.query, version.details_json
  FROM main.ml_model_version AS version
  JOIN main.ml_model_content AS content ON content.name = version.name AND content.version = version.version
 WHERE version.name = :name AND version.version = :version;

-- name: unfinished_training
-- Gives id and status of the newest job that was to train a model.
SELECT id, status FROM main.ml_job WHERE kind = 'train' AND target_name = :name ORDER BY id DESC LIMIT 1;
