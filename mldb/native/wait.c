/*
** wait.c: waits until a job is over, wherever its worker runs.
**
** On Linux the kernel reports writes to the WAL (inotify, which opens no descriptor on the database: closing one would
** drop SQLite's locks). A write is reported before its commit can be seen, so the commit is then awaited through
** `PRAGMA data_version`. Elsewhere data_version is polled. Python does the same in mldb/watch.py.
*/
#define _POSIX_C_SOURCE 200809L

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#if defined(__linux__)
#include <sys/inotify.h>
#endif

#include "ml_jobs.h"
#include "ml_sql.h"

SQLITE_EXTENSION_INIT3

#define FIRST_LOOK_S 0.0001
#define LONGEST_LOOK_S 0.025
#define SETTLED_S 1.0
#define POLL_S 0.025
#define INTERRUPTED_S 0.1  /* between two looks whether the host wants us to stop */

typedef struct Watch {
  sqlite3 *db;
  int inotify;       /* -1 where there is none */
  double noticed;    /* when somebody was seen to write; -1 when their commit showed or never came */
  double look;       /* seconds until the next look */
  sqlite3_int64 seen;
} Watch;

static double ticking(void){
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + (double)now.tv_nsec/1e9;
}

static void watch_begin(Watch *watch, sqlite3 *db, Fault *fault){
  watch->db = db;
  watch->inotify = -1;
#if defined(__linux__)
  {
    const char *wal = sqlite3_filename_wal(sqlite3_db_filename(db, "main"));
    watch->inotify = inotify_init1(IN_NONBLOCK|IN_CLOEXEC);
    if( watch->inotify>=0 && (wal==0 || inotify_add_watch(watch->inotify, wal, IN_MODIFY)<0) ){
      close(watch->inotify);
      watch->inotify = -1;
    }
  }
#endif
  /* A commit may be on its way whose write came before the watch. */
  watch->noticed = ticking();
  watch->look = FIRST_LOOK_S;
  watch->seen = query_number(db, SQL_data_version, fault);
}

static void watch_end(Watch *watch){
  if( watch->inotify>=0 ) close(watch->inotify);
}

static void sleep_or_notice(Watch *watch, double seconds){
  struct pollfd waiting = {watch->inotify, POLLIN, 0};
  char events[4096];
  if( seconds<0.002 ){
    struct timespec moment = {0, (long)(seconds*1e9)};
    nanosleep(&moment, 0);
    if( watch->inotify<0 ) return;
    poll(&waiting, 1, 0);
  }else if( poll(&waiting, watch->inotify>=0, (int)(seconds*1000.0))<=0 ){
    return;
  }
  if( waiting.revents & POLLIN ){
    while( read(watch->inotify, events, sizeof(events))>0 ){}
    watch->look = FIRST_LOOK_S;
    watch->noticed = ticking();
  }
}

/* A nested statement fails at once when the one that runs us was interrupted; sqlite3_is_interrupted() came only with
** SQLite 3.41. */
static int is_interrupted(sqlite3 *host){
  Fault fault = {SQLITE_OK, 0, 0};
  int interrupted;
  query_run(host, SQL_do_nothing, &fault);
  interrupted = fault.code==SQLITE_INTERRUPT;
  fault_clear(&fault);
  return interrupted;
}

/* Waits until somebody committed (1), or until the deadline or an interrupt (0). */
static int watch_wait(Watch *watch, double deadline, sqlite3 *host, Fault *fault){
  while( fault->code==SQLITE_OK ){
    sqlite3_int64 version = query_number(watch->db, SQL_data_version, fault);
    double left = deadline - ticking();
    double step = left<INTERRUPTED_S ? left : INTERRUPTED_S;
    if( version!=watch->seen ){
      watch->seen = version;
      return 1;
    }
    if( left<=0 || is_interrupted(host) ) return 0;
    if( watch->noticed>=0 ){
      /* Somebody writes; its commit shows in a moment. */
      if( ticking()-watch->noticed>SETTLED_S ){
        watch->noticed = -1;
      }else{
        if( watch->look<step ) step = watch->look;
        watch->look = watch->look*2<LONGEST_LOOK_S ? watch->look*2 : LONGEST_LOOK_S;
      }
    }else if( watch->inotify<0 && POLL_S<step ){
      step = POLL_S;
    }
    sleep_or_notice(watch, step);
  }
  return 0;
}

/* Gives the status of a job, to be freed; NULL after a fault, which an unknown job is. */
static char *status_of(sqlite3 *db, sqlite3_int64 id, Fault *fault){
  Query query;
  char *status = 0;
  query_open(&query, db, SQL_job_status, fault);
  query_int(&query, ":id", id);
  if( query_step(&query) ){
    status = query_copy(&query, 0);
  }else{
    fault_say(fault, SQLITE_ERROR, "there is no job %lld; SELECT id FROM ML_JOBS lists those there are", id);
  }
  query_close(&query);
  return status;
}

static int is_terminal(const char *status){
  static const char *const terminal[] = {JOB_TERMINAL};
  int each;
  for(each=0; terminal[each]; each++){
    if( strcmp(status, terminal[each])==0 ) return 1;
  }
  return 0;
}

/* Gives the status of a job once it is over, or as it is after a number of seconds (negative: no limit), to be freed;
** NULL after a fault, which an interrupt of the host is. */
char *job_wait(Surface *surface, sqlite3_int64 id, double seconds, Fault *fault){
  double deadline = seconds<0 ? 1e300 : ticking()+seconds;
  sqlite3 *db = fault->code==SQLITE_OK ? open_reader(surface->db, fault) : 0;
  Watch watch;
  char *status;
  if( db==0 ) return 0;
  watch_begin(&watch, db, fault);
  for(;;){
    status = status_of(db, id, fault);
    if( status==0 || is_terminal(status) || ticking()>=deadline ) break;
    if( is_interrupted(surface->db) ){
      fault_say(fault, SQLITE_INTERRUPT, "ml_wait was interrupted");
      break;
    }
    sqlite3_free(status);
    watch_wait(&watch, deadline, surface->db, fault);
  }
  watch_end(&watch);
  sqlite3_close(db);
  if( fault->code!=SQLITE_OK ){
    sqlite3_free(status);
    status = 0;
  }
  return status;
}
