-- The query in a spec is checked at once.
SELECT ml_init();
= 1
CREATE TABLE mails (text, is_spam);
SELECT ml_submit('train', 'm', '{"query": "SELECT text, is_spam FROM mails", "target": "is_spam"}');
= 1
SELECT ml_submit('train', 'm', '{"query": "SELECT value AS text FROM json_each(''[1]'') -- all"}');
= 2
SELECT ml_submit('train', 'm', '{"query": 5}');
= 3
SELECT ml_submit('noop', 'm', '{"query": "DROP TABLE mails"}');
= 4
SELECT ml_submit('train', 'm', '{"query": "DROP TABLE mails"}');
! only one SELECT is allowed, not a DROP; give one SELECT
SELECT ml_submit('train', 'm', '{"query": "SELECT txt FROM mails"}');
!python no such column: txt, at line 1, column 8, in "SELECT txt FROM mails"; did you mean "text"?
!native no such column: txt; check the name; text stands in single quotes: 'text'
SELECT ml_submit('backfill', 'm', '{"query": "SELECT * FROM nails"}');
!python no such table: nails, at line 1, column 15, in "SELECT * FROM nails"; did you mean "mails"?
!native no such table: nails; create it first, or check the name
SELECT ml_submit('train', 'm', '{"query": "SELECT * FROM ml_job"}');
! the query may not read ml_job; read your own tables and views
SELECT ml_submit('train', 'm', '{"query": "SELECT * FROM sqlite_master"}');
! the query may not read sqlite_master; read your own tables and views
SELECT ml_submit('train', 'm', '{"query": "SELECT * FROM pragma_table_info(''mails'')"}');
! the query may not read pragma_table_info; read your own tables and views
SELECT ml_submit('train', 'm', '{"query": "SELECT load_extension(''x'') AS x"}');
! the query may not call load_extension(); use the functions of SQLite that only compute
SELECT ml_submit('train', 'm', '{"query": "SELECT text AS a, is_spam AS A FROM mails"}');
! in the query's result two columns are named "A"; name each column with AS
SELECT ml_submit('train', 'm', '{"query": "SELECT 1 AS a; SELECT 2 AS b"}');
!python only one SELECT is allowed, not 2 statements; give one SELECT
!native only one SELECT is allowed, not several statements; give one SELECT
SELECT ml_submit('train', 'm', '{"query": ""}');
! the query is empty; give one SELECT
SELECT ml_submit('train', 'm', '{"query": "SELECT \"is_spamm\" AS x FROM mails"}');
!python no such column: is_spamm, at line 1, column 8, in "SELECT "is_spamm" AS x FROM mai…"; did you mean "is_spam"?
!native no such column: is_spamm; check the name; text stands in single quotes: 'text'
SELECT ml_submit('train', 'm', '{"query": "PRAGMA query_only = 0"}');
! only one SELECT is allowed, not a PRAGMA; give one SELECT
SELECT ml_submit('train', 'm', '{"query": "EXPLAIN SELECT 1 AS a"}');
! only one SELECT is allowed, not an EXPLAIN; give one SELECT
SELECT ml_submit('train', 'm', '{"query": "SELECT"}');
!python the query ends too early, at line 1, column 7, in "SELECT"; correct the query
!native the query ends too early; correct the query
INSERT INTO ML_JOBS (kind, spec_json) VALUES ('train', '{"query": "DROP TABLE mails"}');
! only one SELECT is allowed, not a DROP; give one SELECT
BEGIN;
CREATE TABLE later (a);
SELECT ml_submit('train', 'm', '{"query": "SELECT a FROM later"}');
= 5
SELECT ml_submit('train', 'm', '{"query": "DELETE FROM later"}');
! only one SELECT is allowed, not a DELETE; give one SELECT
ROLLBACK;
SELECT count(*) FROM ML_JOBS;
= 4
