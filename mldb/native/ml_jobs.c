/*
** ml_jobs: the job queue of mldb in the sqlite3 shell, and in every program whose SQLite loads extensions.
**
**     make native                          (or: pip install mldb, and SELECT the path of mldb.loadable_path())
**     sqlite3 shop.db
**     .load build/ml_jobs
**     SELECT ml_init();
**     SELECT ml_submit('train', 'spam', json_object('query', 'SELECT * FROM mails', 'target', 'is_spam'));
**     SELECT id, status, progress, message FROM ML_JOBS;
**
** What it adds to the connection:
**
**     ml_init()                            makes the queue in the main database, and switches that to WAL
**     ml_submit(kind, target, spec)        adds a job and gives its id
**     ml_submit(kind, target, spec, options)
**     ml_cancel(id)                        1 when the job was not over
**     ml_retry(id)                         adds a job like one that is over, and gives its id
**     ml_prune(seconds)                    removes jobs that were over that long ago
**     ml_wait(id)                          the status of a job once it is over
**     ml_wait(id, seconds)                 the same, or its status when the time is up
**     ml_version()                         versions, journal mode and known faults, as JSON
**     ML_JOBS                              the jobs as a table; INSERT submits, UPDATE cancels, DELETE removes
**
** It runs no job: a process of workers does (mldb work shop.db). It starts nothing when it is loaded, prints nothing,
** and needs SQLite 3.38 or later, of which it uses the host's and never one of its own.
**
** A job that is submitted inside BEGIN ... COMMIT comes with the COMMIT and goes with a ROLLBACK. Outside a transaction
** each call is a transaction of its own, on a second connection that syncs each commit, so that the job survives a power
** loss whatever the host's own settings are. A connection that is read-only or `query_only` changes nothing.
**
** SQLite before 3.51.3 (except 3.44.6 and 3.50.7 and their successors) has a fault by which a checkpoint may lose another
** connection's commit. There, our second connection makes no checkpoints and leaves them to the workers.
**
** There is no SQL in these files: ml_sql.h is made from sql/, which Python reads too, so a rule changes in one place.
**
**     fault.c         words for what went wrong         functions.c     the functions
**     query.c         runs one statement of sql/        jobs_table.c    ML_JOBS: plans and writes
**     beside.c        our second connection             jobs_cursor.c   ML_JOBS: reads
**     surface.c       what must hold, where to write    sandbox.c       checks queries in specs
**     schema.c        makes and checks the tables       wait.c          waits for commits of others
**     jobs.c          submit, cancel, retry, delete
*/
#define _POSIX_C_SOURCE 200809L

#include <string.h>
#include <unistd.h>

#include "ml_jobs.h"

SQLITE_EXTENSION_INIT1

#define OLDEST 3038000

#if defined(__GNUC__)
__attribute__((visibility("default")))
#endif
int sqlite3_mljobs_init(sqlite3 *db, char **problem, const sqlite3_api_routines *api){
  Surface *surface;
  int code;
  if( sqlite3_api!=0 && sqlite3_api!=api ){
    *problem = api->mprintf("ml_jobs is loaded already by another SQLite library in this process; "
                            "two of them on one file lose commits, use one");
    return SQLITE_ERROR;
  }
  if( api->libversion_number()<OLDEST ){
    *problem = api->mprintf("ml_jobs needs SQLite 3.38 or later and this is %s; use a newer one", api->libversion());
    return SQLITE_ERROR;
  }
  SQLITE_EXTENSION_INIT2(api);
  surface = sqlite3_malloc(sizeof(*surface));
  if( surface==0 ) return SQLITE_NOMEM;
  memset(surface, 0, sizeof(*surface));
  surface->db = db;
  surface->pid = getpid();
  surface->holders = 1;
  code = functions_install(surface);
  if( code==SQLITE_OK ) code = jobs_table_install(surface);
  surface_release(surface);
  return code;
}
