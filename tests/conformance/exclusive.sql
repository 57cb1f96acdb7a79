-- A connection that locks the file exclusively would keep workers out.
SELECT ml_init();
= 1
PRAGMA locking_mode = EXCLUSIVE;
= exclusive
SELECT ml_submit('noop', 'x', NULL);
! this connection locks the database exclusively and keeps workers out; run PRAGMA locking_mode = NORMAL
SELECT ml_init();
! this connection locks the database exclusively and keeps workers out; run PRAGMA locking_mode = NORMAL
PRAGMA locking_mode = NORMAL;
= normal
SELECT ml_submit('noop', 'x', NULL);
= 1
