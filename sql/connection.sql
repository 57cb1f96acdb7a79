-- connection.sql: what the C front end asks of a connection, and what it tells its users about it.
--
-- Settings, transactions, and whether the tables of a file are ours. Python asks the same in mldb/connection.py and
-- mldb/migrate.py.

-- name: begin_writing
-- Begins a transaction that writes.
BEGIN IMMEDIATE;

-- name: commit
-- Ends it, keeping what it did.
COMMIT;

-- name: rollback
-- Ends it, undoing what it did.
ROLLBACK;

-- name: sync_each_commit
-- Makes a committed job survive power loss.
PRAGMA synchronous = FULL;

-- name: cut_the_wal
-- Cuts the WAL back to 64 MiB after a checkpoint.
PRAGMA journal_size_limit = 67108864;

-- name: only_read
-- Makes a connection refuse to write.
PRAGMA query_only = 1;

-- name: is_query_only
-- Gives 1 when a connection refuses to write.
PRAGMA query_only;

-- name: locking_mode
-- Gives normal or exclusive.
PRAGMA main.locking_mode;

-- name: journal_mode
-- Gives the journal mode, in lower case.
PRAGMA main.journal_mode;

-- name: use_wal
-- Switches to WAL and gives the journal mode that there is then.
PRAGMA main.journal_mode = WAL;

-- name: data_version
-- Gives a number that moves when another connection commits.
PRAGMA data_version;

-- name: synchronous
-- Gives 0 to 3, for off, normal, full and extra.
PRAGMA main.synchronous;

-- name: read_schema
-- Reads the schema, as a first look at a file, or to notice a new journal mode.
SELECT count(*) FROM main.sqlite_schema;

-- name: do_nothing
-- Gives 1; inside a statement that was interrupted it fails with SQLITE_INTERRUPT.
SELECT 1;

-- name: meet_jobs
-- Gives nothing; preparing it makes a connection meet the virtual table ML_JOBS.
SELECT 1 FROM ML_JOBS LIMIT 0;

-- name: shown
-- Gives a value as SQL would write it, shortened.
SELECT CASE :value WHEN 9e999 THEN '9e999' WHEN -9e999 THEN '-9e999' ELSE substr(quote(:value), 1, 60) END;

-- name: is_missing
-- Gives 1 when a text says that a table or a column is not there.
SELECT instr(:words, 'no such') > 0;

-- name: rule_with_json
-- Fails on a connection that distrusts schemas when this SQLite counts JSON functions among what could do harm, as some
-- from 3.38 on did: the rules of our own tables call them.
CREATE TABLE main.rule (value TEXT CHECK (json_valid(value)));

-- name: our_objects
-- Gives the tables, indexes, triggers and views of a queue as a JSON array of [name, type, sql].
SELECT json_group_array(json_array(lower(name), type, sql))
  FROM (SELECT name, type, sql FROM main.sqlite_schema
         WHERE sql > '' AND lower(name) GLOB 'ml_*' ORDER BY rowid);

-- name: queue_problem
-- Says why a database has no queue of ours, given all objects of one and those of its first step. The second column
-- is 1 when a queue can be made there. Gives no row when there is one.
WITH
made (name, type, sql) AS (
  SELECT value ->> 0, value ->> 1, value ->> 2 FROM json_each(:first)
),
ours (name) AS (
  SELECT value ->> 0 FROM json_each(:objects) UNION SELECT 'ml_jobs'
),
found (name, type, sql) AS (
  SELECT lower(name), type, sql FROM main.sqlite_schema WHERE sql > '' AND lower(name) GLOB 'ml_*'
)
SELECT coalesce((SELECT min(name) FROM found WHERE name IN (SELECT name FROM ours))
                || ' in this database is not mldb''s; rename it or use another file',
                'this database has no job queue yet; run SELECT ml_init(), or: mldb init FILE'),
       NOT EXISTS (SELECT 1 FROM found WHERE name IN (SELECT name FROM ours))
 WHERE NOT EXISTS (SELECT 1 FROM found WHERE name = 'ml_schema')
UNION ALL
SELECT 'ml_schema in this database is not mldb''s; rename it or use another file', 0
 WHERE EXISTS (SELECT 1 FROM found WHERE name = 'ml_schema')
   AND NOT EXISTS (SELECT 1 FROM found JOIN made USING (name, type, sql) WHERE name = 'ml_schema');

-- name: schema_version
-- Gives the number of the last step that the schema of a queue has.
SELECT coalesce(max(version), 0) FROM main.ml_schema;

-- name: schema_problem
-- Says what is wrong with the schema of a queue, given the objects that its steps make; gives no row when nothing is.
WITH
made (place, name, type, sql) AS (
  SELECT key, value ->> 0, value ->> 1, value ->> 2 FROM json_each(:objects)
),
found (name, type, sql) AS (
  SELECT lower(name), type, sql FROM main.sqlite_schema WHERE sql > '' AND lower(name) GLOB 'ml_*'
),
problem (place, words) AS (
  SELECT place, name || ' in this database is not as mldb made it; use another file, or a backup of this one'
    FROM made
   WHERE NOT EXISTS (SELECT 1 FROM found
                      WHERE found.name = made.name AND found.type = made.type AND found.sql = made.sql)
  UNION ALL
  SELECT 1000000, 'ml_jobs in this database hides the virtual table ML_JOBS; rename it'
    FROM found WHERE name = 'ml_jobs'
)
SELECT words FROM problem ORDER BY place LIMIT 1;

-- name: checkpoints_are_safe
-- Gives 0 when this SQLite has the WAL-reset fault: a checkpoint during another's commit may lose that commit. Mended in
-- 3.51.3, 3.50.7 and 3.44.6.
SELECT number >= 3051003 OR number BETWEEN 3050007 AND 3050999 OR number BETWEEN 3044006 AND 3044999
  FROM (SELECT value ->> 0 * 1000000 + value ->> 1 * 1000 + value ->> 2 AS number
          FROM (SELECT '[' || replace(sqlite_version(), '.', ',') || ']' AS value));

-- name: version_report
-- Gives as a JSON object which versions are at work, how the main database commits, and the known faults of this SQLite.
SELECT json_object(
         'mldb', :mldb,
         'front_end', :front_end,
         'sqlite', sqlite_version(),
         'journal_mode', :journal_mode,
         'synchronous', CASE :synchronous WHEN 0 THEN 'off' WHEN 1 THEN 'normal' WHEN 2 THEN 'full' ELSE 'extra' END,
         'known_faults', CASE WHEN :checkpoints_are_safe THEN json_array()
                              ELSE json_array('WAL reset: a checkpoint may lose a commit; mended in SQLite 3.51.3') END);

-- name: text_of_spec
-- Gives the text under a key of a spec; no row when there is none.
SELECT value
  FROM json_each(CASE WHEN CASE WHEN json_valid(:spec) THEN json_type(:spec) END = 'object' THEN :spec ELSE '{}' END)
 WHERE key = :key AND type = 'text'
 ORDER BY id DESC
 LIMIT 1;

-- name: given_options
-- Gives the options that an INSERT into ML_JOBS sets, as a JSON object; NULL when it sets none.
SELECT nullif(json_patch('{}', json_object('priority', :priority, 'run_at', :run_at_ms, 'max_attempts', :max_attempts,
                                           'tag', :tag)), '{}');

-- name: other_statement
-- Gives a statement that is no query as an error names it, given its first word; no row for the word of a query.
SELECT iif(substr(upper(:word), 1, 1) IN ('A', 'E', 'I', 'U'), 'an ', 'a ') || upper(:word)
 WHERE upper(:word) IN ('ALTER', 'ANALYZE', 'ATTACH', 'BEGIN', 'COMMIT', 'CREATE', 'DELETE', 'DETACH', 'DROP', 'END',
                        'EXPLAIN', 'INSERT', 'PRAGMA', 'REINDEX', 'RELEASE', 'REPLACE', 'ROLLBACK', 'SAVEPOINT',
                        'UPDATE', 'VACUUM');

-- name: query_fault
-- Gives what SQLite says of a query that it cannot prepare, and what to do.
SELECT words || CASE WHEN words GLOB 'no such table:*' THEN '; create it first, or check the name'
                     WHEN words GLOB 'no such column:*' THEN '; check the name; text stands in single quotes: ''text'''
                     WHEN words GLOB 'no such function:*' THEN
                       '; the functions built into SQLite are there, others are not'
                     ELSE '; correct the query' END
  FROM (SELECT CASE WHEN instr(:words, ' - should this be') > 0
                    THEN replace(substr(:words, 1, instr(:words, ' - should this be') - 1), '"', '')
                    WHEN :words = 'incomplete input' THEN 'the query ends too early'
                    ELSE :words END AS words);

-- name: unreadable
-- Gives the first of the names read by a query (a JSON array) that is not a table or view of the database but is made by
-- a module, other than those allowed (a JSON array too).
SELECT one.value
  FROM json_each(:names) AS one
 WHERE lower(one.value) NOT IN (SELECT value FROM json_each(:allowed))
   AND NOT EXISTS (SELECT 1 FROM main.sqlite_schema AS object
                    WHERE object.name = one.value COLLATE NOCASE AND object.type IN ('table', 'view'))
   AND lower(one.value) IN (SELECT name FROM pragma_module_list)
 ORDER BY one.value
 LIMIT 1;
