-- What a submission must be.
SELECT ml_init();
= 1
SELECT ml_submit('noop', 'first', NULL);
= 1
SELECT ml_submit('noop', '', '{}');
= 2
SELECT ml_submit('noop', 'x', '{"a": [1, 2]}');
= 3
SELECT id, kind, target_name, status, progress, spec_json, priority, attempt, max_attempts, tag FROM ML_JOBS;
= 1|noop|first|queued|0|{}|0|0|1|NULL
= 2|noop||queued|0|{}|0|0|1|NULL
= 3|noop|x|queued|0|{"a": [1, 2]}|0|0|1|NULL
SELECT ml_submit(NULL, 'x', NULL);
! kind must be a text such as 'train', not null
SELECT ml_submit('', 'x', NULL);
! kind must have 1 to 200 characters; give a name such as 'train'
SELECT ml_submit(5, 'x', NULL);
! kind must be a text such as 'train', not integer
SELECT ml_submit(printf('%.201c', 'x'), 'x', NULL);
! kind must have 1 to 200 characters; give a name such as 'train'
SELECT ml_submit('a' || char(0), 'x', NULL);
! kind must not contain a NUL character; leave it out
SELECT ml_submit('noop', NULL, NULL);
! target must be a text that names what the job is for, not null
SELECT ml_submit('noop', 5, NULL);
! target must be a text that names what the job is for, not integer
SELECT ml_submit('noop', x'00', NULL);
! target must be a text that names what the job is for, not blob
SELECT ml_submit('noop', printf('%.1001c', 'x'), NULL);
! target must have at most 1000 characters; shorten it
SELECT ml_submit('noop', 'a' || char(0), NULL);
! target must not contain a NUL character; leave it out
SELECT ml_submit('noop', 'x', '{');
! spec is not valid JSON; make it with json_object(...)
SELECT ml_submit('noop', 'x', '[1]');
! spec must be a JSON object, not a JSON array; make it with json_object(...)
SELECT ml_submit('noop', 'x', '5');
! spec must be a JSON object, not a JSON integer; make it with json_object(...)
SELECT ml_submit('noop', 'x', 5);
! spec must be the text of a JSON object or NULL, not integer; make it with json_object(...)
SELECT ml_submit('noop', 'x', x'00');
! spec must be the text of a JSON object or NULL, not blob; make it with json_object(...)
SELECT ml_submit('noop', 'x', '{}' || char(0));
! spec is not valid JSON; make it with json_object(...)
SELECT ml_submit('noop', 'x', json_object('a', printf('%.1048576c', 'x')));
! spec has 1048584 bytes and at most 1048576 are kept; put large input into a table and name the table in the spec
SELECT ml_submit('noop', 'x', json_object('a', printf('%.2000c', 'x')));
= 4
SELECT length(spec_json) FROM ML_JOBS WHERE id = 4;
= 2008
SELECT ml_submit('noop');
! wrong number of arguments to function ml_submit()
SELECT count(*) FROM ML_JOBS;
= 4
