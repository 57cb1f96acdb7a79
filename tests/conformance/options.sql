-- What options mean, and how wrong ones are told.
SELECT ml_init();
= 1
SELECT ml_submit('noop', 'x', NULL, NULL);
= 1
SELECT ml_submit('noop', 'x', NULL, '{}');
= 2
SELECT ml_submit('noop', 'x', NULL, '{"priority": -3, "max_attempts": 5, "backoff": 0.5, "timeout": 9, "tag": "t"}');
= 3
SELECT ml_submit('noop', 'x', NULL, '{"run_at": 4102444800000}');
= 4
SELECT ml_submit('noop', 'x', NULL, '{"run_at": "2100-01-01T02:00:00+02:00"}');
= 5
SELECT ml_submit('noop', 'x', NULL, '{"delay": 0}');
= 6
SELECT ml_submit('noop', 'x', NULL, '{"priority": null, "delay": null}');
= 7
SELECT id, priority, run_at_ms, max_attempts, tag FROM ML_JOBS;
= 1|0|NULL|1|NULL
= 2|0|NULL|1|NULL
= 3|-3|NULL|5|t
= 4|0|4102444800000|1|NULL
= 5|0|4102444800000|1|NULL
= 6|0|NULL|1|NULL
= 7|0|NULL|1|NULL
SELECT backoff_s, timeout_s FROM ml_job WHERE id = 3;
= 0.5|9.0
SELECT message FROM ML_JOBS WHERE id = 4;
= waiting until 2100-01-01 00:00:00 UTC
SELECT ml_submit('noop', 'x', NULL, '{"unique": "k"}');
= 8
SELECT ml_submit('noop', 'y', NULL, '{"unique": "k"}');
= 8
SELECT ml_submit('other', 'y', NULL, '{"unique": "k"}');
= 9
SELECT ml_cancel(8);
= 1
SELECT ml_submit('noop', 'y', NULL, '{"unique": "k"}');
= 10
SELECT ml_submit('noop', 'x', NULL, 5);
! options must be the text of a JSON object or NULL, not integer; make it with json_object(...)
SELECT ml_submit('noop', 'x', NULL, '{');
! options is not valid JSON; make it with json_object(...)
SELECT ml_submit('noop', 'x', NULL, '[]');
! options must be a JSON object, not a JSON array; make it with json_object(...)
SELECT ml_submit('noop', 'x', NULL, '{"prioritty": 1}');
! there is no option 'prioritty'; did you mean 'priority'?
SELECT ml_submit('noop', 'x', NULL, '{"zzz": 1}');
! there is no option 'zzz'; the options are priority, run_at, delay, max_attempts, backoff, timeout, unique, tag
SELECT ml_submit('noop', 'x', NULL, '{"priority": 1.5}');
! option 'priority' must be a whole number, higher first, such as 5, not 1.5
SELECT ml_submit('noop', 'x', NULL, '{"priority": "high"}');
! option 'priority' must be a whole number, higher first, such as 5, not 'high'
SELECT ml_submit('noop', 'x', NULL, '{"priority": true}');
! option 'priority' must be a whole number, higher first, such as 5, not 1
SELECT ml_submit('noop', 'x', NULL, '{"max_attempts": 0}');
! option 'max_attempts' must be a whole number from 1 to 1000, not 0
SELECT ml_submit('noop', 'x', NULL, '{"delay": -1}');
! option 'delay' must be a number of seconds from 0, such as 60, not -1
SELECT ml_submit('noop', 'x', NULL, '{"timeout": 0}');
! option 'timeout' must be a number of seconds above 0, such as 600, not 0
SELECT ml_submit('noop', 'x', NULL, '{"backoff": []}');
! option 'backoff' must be a number of seconds from 0, such as 10, not a JSON array
SELECT ml_submit('noop', 'x', NULL, '{"unique": ""}');
! option 'unique' must be a text of 1 to 1000 characters, not ''
SELECT ml_submit('noop', 'x', NULL, '{"run_at": "tomorrow"}');
! option 'run_at' must be milliseconds since 1970, or a time with its offset such as '2030-01-31T08:00:00+01:00', not 'tomorrow'
SELECT ml_submit('noop', 'x', NULL, '{"run_at": "2030-02-30T00:00:00Z"}');
! option 'run_at' must be milliseconds since 1970, or a time with its offset such as '2030-01-31T08:00:00+01:00', not '2030-02-30T00:00:00Z'
SELECT ml_submit('noop', 'x', NULL, '{"run_at": 1900000000}');
! option 'run_at' is in milliseconds since 1970 and 1900000000 looks like seconds; multiply it by 1000
SELECT ml_submit('noop', 'x', NULL, '{"run_at": 4102444800000, "delay": 5}');
! options 'run_at' and 'delay' both say when to run; give one of them
SELECT ml_submit('noop', 'x', NULL, '{"tag": "a", "tag": "b"}');
! option 'tag' is given twice; give it once
SELECT ml_submit(5, 'x', NULL, '{"zzz": 1}');
! kind must be a text such as 'train', not integer
SELECT max(id) FROM ML_JOBS;
= 10
