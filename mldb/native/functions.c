/*
** functions.c: the SQL functions of the queue: arguments in, a value or a fault out. See mldb/surface.py for Python's.
*/
#define _POSIX_C_SOURCE 200809L

#include <time.h>

#include "ml_jobs.h"
#include "ml_sql.h"

SQLITE_EXTENSION_INIT3

#define FIRST_PRUNE 200
#define LARGEST_PRUNE 10000
#define PRUNE_LOCK_NS 50000000.0
#define LONGEST_S 1e10

/* Gives an argument as a job's id. */
static sqlite3_int64 job_id(Surface *surface, const char *function, sqlite3_value *value, Fault *fault){
  if( sqlite3_value_type(value)!=SQLITE_INTEGER ){
    char *text = shown(surface->db, value, fault);
    fault_say(fault, SQLITE_ERROR, "%s: the id of a job is a whole number, not %s", function, text);
    sqlite3_free(text);
    return 0;
  }
  return sqlite3_value_int64(value);
}

/* Gives an argument as seconds from 0. */
static double seconds_of(Surface *surface, const char *function, sqlite3_value *value, Fault *fault){
  int type = sqlite3_value_type(value);
  double seconds = sqlite3_value_double(value);
  if( (type!=SQLITE_INTEGER && type!=SQLITE_FLOAT) || !(seconds>=0.0 && seconds<=LONGEST_S) ){
    char *text = shown(surface->db, value, fault);
    fault_say(fault, SQLITE_ERROR, "%s: seconds must be a number from 0, not %s", function, text);
    sqlite3_free(text);
    return 0;
  }
  return seconds;
}

/* ml_init(): makes or migrates the schema and switches to WAL; 1 when that did something. */
static void ml_init(sqlite3_context *context, int count, sqlite3_value **values){
  Fault fault = {SQLITE_OK, 0, 0};
  int done = schema_prepare(sqlite3_user_data(context), &fault);
  (void)count;
  (void)values;
  sqlite3_result_int(context, done);
  fault_report(&fault, context);
}

/* ml_submit(kind, target, spec [, options]): adds a job and gives its id. */
static void ml_submit(sqlite3_context *context, int count, sqlite3_value **values){
  Surface *surface = sqlite3_user_data(context);
  Submission job = {values[0], values[1], values[2], count>3 ? values[3] : 0};
  Fault fault = {SQLITE_OK, 0, surface};
  Writing writing;
  require_writable(surface, &fault);
  check_queries(surface, &job, &fault);
  writing_begin(&writing, surface, job.options && sqlite3_value_type(job.options)!=SQLITE_NULL, &fault);
  sqlite3_result_int64(context, job_submit(writing.db, &job, &fault));
  writing_end(&writing, &fault);
  fault_report(&fault, context);
}

/* ml_cancel(id): 1 when the job was not over, 0 when it was or is unknown. */
static void ml_cancel(sqlite3_context *context, int count, sqlite3_value **values){
  Surface *surface = sqlite3_user_data(context);
  Fault fault = {SQLITE_OK, 0, surface};
  Writing writing;
  sqlite3_int64 id = job_id(surface, "ml_cancel", values[0], &fault);
  (void)count;
  require_writable(surface, &fault);
  writing_begin(&writing, surface, 0, &fault);
  sqlite3_result_int(context, job_cancel(writing.db, id, &fault));
  writing_end(&writing, &fault);
  fault_report(&fault, context);
}

/* ml_retry(id): adds a job like a terminal one and gives its id; NULL for an unknown one. */
static void ml_retry(sqlite3_context *context, int count, sqlite3_value **values){
  Surface *surface = sqlite3_user_data(context);
  Fault fault = {SQLITE_OK, 0, surface};
  Writing writing;
  sqlite3_int64 made = 0, id = job_id(surface, "ml_retry", values[0], &fault);
  (void)count;
  require_writable(surface, &fault);
  writing_begin(&writing, surface, 1, &fault);
  if( job_retry(writing.db, id, &made, &fault) ) sqlite3_result_int64(context, made);
  writing_end(&writing, &fault);
  fault_report(&fault, context);
}

/* Gives nanoseconds on a clock that never goes back. */
static double ticking(void){
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec*1e9 + (double)now.tv_nsec;
}

/* Removes old jobs in batches that hold the write lock for a moment each. */
static sqlite3_int64 prune_in_batches(Surface *surface, sqlite3_int64 before, Fault *fault){
  sqlite3_int64 removed = 0, after = 0;
  double count = FIRST_PRUNE;
  for(;;){
    Writing writing;
    char *ids = 0;
    double began, wanted;
    int found;
    writing_begin(&writing, surface, 0, fault);
    found = job_old(writing.db, before, after, (int)count, &ids, &after, fault);
    writing_end(&writing, fault);
    if( found>0 && fault->code==SQLITE_OK ){
      began = ticking();
      writing_begin(&writing, surface, 1, fault);
      removed += job_delete(writing.db, ids, fault);
      writing_end(&writing, fault);
      wanted = count*PRUNE_LOCK_NS/2/(ticking()-began+1000.0);
      count = wanted<count*2 ? wanted : count*2;
      if( count>LARGEST_PRUNE ) count = LARGEST_PRUNE;
      if( count<1 ) count = 1;
    }
    sqlite3_free(ids);
    if( found==0 || fault->code!=SQLITE_OK ) return removed;
  }
}

/* ml_prune(seconds): removes terminal jobs that finished at least so long ago; gives how many. */
static void ml_prune(sqlite3_context *context, int count, sqlite3_value **values){
  Surface *surface = sqlite3_user_data(context);
  Fault fault = {SQLITE_OK, 0, surface};
  double seconds = seconds_of(surface, "ml_prune", values[0], &fault);
  sqlite3_int64 last, before = now_ms() - (sqlite3_int64)(seconds*1000.0+0.5);
  (void)count;
  if( require_writable(surface, &fault)==SQLITE_OK ){
    if( is_inside(surface) ){
      Writing writing;
      char *ids = 0;
      writing_begin(&writing, surface, 0, &fault);
      job_old(writing.db, before, 0, 0x7fffffff, &ids, &last, &fault);
      sqlite3_result_int(context, job_delete(writing.db, ids, &fault));
      writing_end(&writing, &fault);
      sqlite3_free(ids);
    }else{
      sqlite3_result_int64(context, prune_in_batches(surface, before, &fault));
    }
  }
  fault_report(&fault, context);
}

/* ml_wait(id [, seconds]): gives the status of a job once it is over, or at the deadline. */
static void ml_wait(sqlite3_context *context, int count, sqlite3_value **values){
  Surface *surface = sqlite3_user_data(context);
  Fault fault = {SQLITE_OK, 0, surface};
  sqlite3_int64 id = job_id(surface, "ml_wait", values[0], &fault);
  double seconds = -1.0;
  char *status = 0;
  if( count>1 && sqlite3_value_type(values[1])!=SQLITE_NULL ){
    seconds = seconds_of(surface, "ml_wait", values[1], &fault);
  }
  require_writable(surface, &fault);
  if( fault.code==SQLITE_OK && is_inside(surface) ){
    fault_say(&fault, SQLITE_ERROR,
              "ml_wait cannot be used inside a transaction: workers could not write what they did; COMMIT first");
  }
  status = job_wait(surface, id, seconds, &fault);
  if( status ) sqlite3_result_text(context, status, -1, sqlite3_free);
  fault_report(&fault, context);
}

/* ml_version(): which versions are at work, how the database commits, and known faults, as a JSON object. */
static void ml_version(sqlite3_context *context, int count, sqlite3_value **values){
  Surface *surface = sqlite3_user_data(context);
  Fault fault = {SQLITE_OK, 0, surface};
  Query mode, query;
  (void)count;
  (void)values;
  query_open(&mode, surface->db, SQL_journal_mode, &fault);
  query_step(&mode);
  query_open(&query, surface->db, SQL_version_report, &fault);
  query_text(&query, ":mldb", ML_VERSION);
  query_text(&query, ":front_end", "C");
  if( fault.code==SQLITE_OK ) query_value(&query, ":journal_mode", sqlite3_column_value(mode.stmt, 0));
  query_int(&query, ":synchronous", query_number(surface->db, SQL_synchronous, &fault));
  query_int(&query, ":checkpoints_are_safe", query_number(surface->db, SQL_checkpoints_are_safe, &fault));
  if( query_step(&query) ) sqlite3_result_value(context, sqlite3_column_value(query.stmt, 0));
  query_close(&query);
  query_close(&mode);
  fault_report(&fault, context);
}

/* Puts the functions on the host's connection. */
int functions_install(Surface *surface){
  static const struct {
    const char *name;
    int count;
    void (*function)(sqlite3_context*, int, sqlite3_value**);
    int flags;
  } functions[] = {
    /* Direct only: views and triggers of somebody's file must not be able to call what writes. */
    {"ml_init", 0, ml_init, SQLITE_DIRECTONLY},
    {"ml_submit", 3, ml_submit, SQLITE_DIRECTONLY},
    {"ml_submit", 4, ml_submit, SQLITE_DIRECTONLY},
    {"ml_cancel", 1, ml_cancel, SQLITE_DIRECTONLY},
    {"ml_retry", 1, ml_retry, SQLITE_DIRECTONLY},
    {"ml_prune", 1, ml_prune, SQLITE_DIRECTONLY},
    {"ml_wait", 1, ml_wait, SQLITE_DIRECTONLY},
    {"ml_wait", 2, ml_wait, SQLITE_DIRECTONLY},
    {"ml_version", 0, ml_version, SQLITE_DIRECTONLY},
  };
  int code = SQLITE_OK;
  unsigned each;
  for(each=0; each<sizeof(functions)/sizeof(functions[0]) && code==SQLITE_OK; each++){
    /* SQLite lets go of the surface also when this fails. */
    code = sqlite3_create_function_v2(surface->db, functions[each].name, functions[each].count,
                                      SQLITE_UTF8 | functions[each].flags, surface_hold(surface),
                                      functions[each].function, 0, 0, surface_release);
  }
  return code;
}
