-- The queue is not made inside a transaction.
BEGIN;
SELECT ml_init();
! the queue cannot be set up inside a transaction; COMMIT or ROLLBACK first
ROLLBACK;
SELECT ml_init();
= 1
