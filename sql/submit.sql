-- submit.sql: what a submission must be, and what its options mean.
--
-- The rules and their words stand here, so that every front end accepts and refuses the same. A front end runs
-- submission_problem only when an argument is not plainly right, or when there are options.

-- name: submission_problem
-- Says what is wrong with a submission, in words; gives NULL when nothing is.
WITH RECURSIVE
known (name, types, need) AS (
  VALUES ('priority',     'integer',          'a whole number, higher first, such as 5'),
         ('run_at',       'integer text',     'milliseconds since 1970, or a time with its offset such as ''2030-01-31T08:00:00+01:00'''),
         ('delay',        'integer real',     'a number of seconds from 0, such as 60'),
         ('max_attempts', 'integer',          'a whole number from 1 to 1000'),
         ('backoff',      'integer real',     'a number of seconds from 0, such as 10'),
         ('timeout',      'integer real',     'a number of seconds above 0, such as 600'),
         ('unique',       'text',             'a text of 1 to 1000 characters'),
         ('tag',          'text',             'a text of at most 1000 characters')
),
given (name, type, value) AS (
  SELECT key, type, atom
    FROM json_each(CASE WHEN CASE WHEN json_valid(:options) THEN json_type(:options) END = 'object' THEN :options ELSE '{}' END)
),
pair (name, place) AS (
  SELECT name, 1 FROM given WHERE name NOT IN (SELECT name FROM known)
  UNION ALL
  SELECT name, place + 1 FROM pair WHERE place < min(length(name) - 1, 50)
),
nearest (name, option, likeness) AS (
  SELECT pair.name, known.name,
         2.0 * count(*) / (length(pair.name) + length(known.name) - 2)
    FROM pair JOIN known ON instr(known.name, substr(lower(pair.name), pair.place, 2))
   WHERE length(pair.name) > 1
   GROUP BY pair.name, known.name
),
problem (rank, words) AS (
  SELECT 1, 'kind must be a text such as ''train'', not ' || typeof(:kind)
   WHERE typeof(:kind) <> 'text'
  UNION ALL
  SELECT 1, 'kind must have 1 to 200 characters; give a name such as ''train'''
   WHERE typeof(:kind) = 'text' AND length(:kind) NOT BETWEEN 1 AND 200
  UNION ALL
  SELECT 1, 'kind must not contain a NUL character; leave it out'
   WHERE typeof(:kind) = 'text' AND instr(:kind, char(0))
  UNION ALL
  SELECT 2, 'target must not contain a NUL character; leave it out'
   WHERE typeof(:target) = 'text' AND instr(:target, char(0))
  UNION ALL
  SELECT 2, 'target must be a text that names what the job is for, not ' || typeof(:target)
   WHERE typeof(:target) <> 'text'
  UNION ALL
  SELECT 2, 'target must have at most 1000 characters; shorten it'
   WHERE typeof(:target) = 'text' AND length(:target) > 1000
  UNION ALL
  SELECT 3, 'spec must be the text of a JSON object or NULL, not ' || typeof(:spec)
            || '; make it with json_object(...)'
   WHERE typeof(:spec) NOT IN ('text', 'null')
  UNION ALL
  SELECT 3, 'spec has ' || length(CAST(:spec AS BLOB)) || ' bytes and at most 1048576 are kept; '
            || 'put large input into a table and name the table in the spec'
   WHERE typeof(:spec) = 'text' AND length(CAST(:spec AS BLOB)) > 1048576
  UNION ALL
  SELECT 4, 'spec is not valid JSON; make it with json_object(...)'
   WHERE typeof(:spec) = 'text' AND (NOT json_valid(:spec) OR instr(:spec, char(0)))
  UNION ALL
  SELECT 4, 'spec must be a JSON object, not a JSON ' || json_type(:spec) || '; make it with json_object(...)'
   WHERE typeof(:spec) = 'text' AND CASE WHEN json_valid(:spec) THEN json_type(:spec) <> 'object' END
  UNION ALL
  SELECT 5, 'options must be the text of a JSON object or NULL, not ' || typeof(:options)
            || '; make it with json_object(...)'
   WHERE typeof(:options) NOT IN ('text', 'null')
  UNION ALL
  SELECT 5, 'options is not valid JSON; make it with json_object(...)'
   WHERE typeof(:options) = 'text' AND (NOT json_valid(:options) OR instr(:options, char(0)))
  UNION ALL
  SELECT 5, 'options must be a JSON object, not a JSON ' || json_type(:options) || '; make it with json_object(...)'
   WHERE typeof(:options) = 'text' AND CASE WHEN json_valid(:options) THEN json_type(:options) <> 'object' END
  UNION ALL
  SELECT 6, 'there is no option ' || quote(given.name)
            || coalesce((SELECT '; did you mean ' || quote(option) || '?' FROM nearest
                          WHERE nearest.name = given.name AND likeness >= 0.2
                          ORDER BY likeness DESC, option LIMIT 1),
                        '; the options are ' || (SELECT group_concat(name, ', ') FROM known))
    FROM given
   WHERE given.name NOT IN (SELECT name FROM known)
  UNION ALL
  SELECT 7, 'option ' || quote(given.name) || ' must be ' || known.need || ', not ' || CASE WHEN value IS NULL THEN 'a JSON ' || type ELSE quote(value) END
    FROM given JOIN known ON known.name = given.name
   WHERE type <> 'null' AND (NOT instr(known.types, type)
      OR CASE given.name
           WHEN 'priority' THEN typeof(value) <> 'integer'
           WHEN 'run_at' THEN
             CASE WHEN type = 'integer' THEN typeof(value) <> 'integer' OR value NOT BETWEEN 0 AND 253402300799999
                  ELSE julianday(value) IS NULL OR julianday(value) < 2440587.5
                       OR date(value, '+0 days') IS NULL
                       OR date(substr(value, 1, 10), '+0 days') <> substr(value, 1, 10)  -- the 30th of February
                       OR NOT (value GLOB '[0-9][0-9][0-9][0-9]-*[zZ]'
                               OR value GLOB '[0-9][0-9][0-9][0-9]-*[-+][0-9][0-9]:[0-9][0-9]')
                       OR value NOT GLOB '*[0-9][0-9]:[0-9][0-9]*' END
           WHEN 'delay' THEN value NOT BETWEEN 0 AND 1e10
           WHEN 'max_attempts' THEN value NOT BETWEEN 1 AND 1000
           WHEN 'backoff' THEN value NOT BETWEEN 0 AND 1e10
           WHEN 'timeout' THEN value <= 0 OR value > 1e10
           WHEN 'unique' THEN length(value) NOT BETWEEN 1 AND 1000
           WHEN 'tag' THEN length(value) > 1000
         END)
  UNION ALL
  SELECT 8, 'option ''run_at'' is in milliseconds since 1970 and ' || value
            || ' looks like seconds; multiply it by 1000'
    FROM given
   WHERE name = 'run_at' AND type = 'integer' AND value BETWEEN 100000000 AND 99999999999
  UNION ALL
  SELECT 9, 'options ''run_at'' and ''delay'' both say when to run; give one of them'
   WHERE (SELECT count(DISTINCT name) FROM given WHERE name IN ('run_at', 'delay') AND type <> 'null') = 2
  UNION ALL
  SELECT 10, 'option ' || quote(name) || ' is given twice; give it once'
    FROM given GROUP BY name HAVING count(*) > 1
)
SELECT words FROM problem ORDER BY rank, words LIMIT 1;

-- name: read_options
-- Gives what the options of a submission that has no problem mean. By key, since a path does not match a key that is
-- written with escapes in SQLite before 3.42.
SELECT coalesce(max(iif(key = 'priority', atom, NULL)), 0) AS priority,
       coalesce(max(iif(key = 'run_at', iif(type = 'integer', atom,
                                            CAST(round((julianday(atom) - 2440587.5) * 86400000) AS INTEGER)), NULL)),
                max(iif(key = 'delay' AND atom > 0, :now + CAST(round(atom * 1000) AS INTEGER), NULL))) AS run_at_ms,
       coalesce(max(iif(key = 'max_attempts', atom, NULL)), 1) AS max_attempts,
       coalesce(max(iif(key = 'backoff', atom, NULL)), 1.0) AS backoff_s,
       max(iif(key = 'timeout', atom, NULL)) AS timeout_s,
       max(iif(key = 'unique', atom, NULL)) AS unique_key,
       max(iif(key = 'tag', atom, NULL)) AS tag
  FROM json_each(:options)
 WHERE type <> 'null';
