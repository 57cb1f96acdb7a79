/*
** jobs.c: what a user does to jobs, on a connection that may write. Python does the same in mldb/store/jobs.py; what a
** submission must be, and in which words it is refused, stands in sql/submit.sql and sql/schema.sql.
*/
#include <time.h>

#include "ml_jobs.h"
#include "ml_sql.h"

SQLITE_EXTENSION_INIT3

/* Gives the wall-clock time in milliseconds since 1970. */
sqlite3_int64 now_ms(void){
  struct timespec now;
  timespec_get(&now, TIME_UTC);
  return (sqlite3_int64)now.tv_sec*1000 + now.tv_nsec/1000000;
}

static int is_null(sqlite3_value *value){
  return value==0 || sqlite3_value_type(value)==SQLITE_NULL;
}

/* A violated rule is the user's, and no fault of the database. */
static void ordinary(Fault *fault){
  if( fault->code==SQLITE_CONSTRAINT ) fault->code = SQLITE_ERROR;
}

/* Binds what both ways to submit have in common. */
static void bind_job(Query *query, const Submission *job){
  query_value(query, ":kind", job->kind);
  query_value(query, ":target", job->target);
  query_value(query, ":spec", job->spec);
}

/* A fault in plain words when a submission has a problem. */
static void require_sound(sqlite3 *db, const Submission *job, Fault *fault){
  Query query;
  query_open(&query, db, SQL_submission_problem, fault);
  bind_job(&query, job);
  query_value(&query, ":options", job->options);
  if( query_step(&query) && sqlite3_column_type(query.stmt, 0)!=SQLITE_NULL ){
    fault_say(fault, SQLITE_ERROR, "%s", sqlite3_column_text(query.stmt, 0));
  }
  query_close(&query);
}

/* Steps an INSERT to its end and gives the id that it returns, 0 after a fault. */
static sqlite3_int64 added(Query *query){
  sqlite3_int64 id = 0;
  while( query_step(query) ) id = sqlite3_column_int64(query->stmt, 0);
  query_close(query);
  return id;
}

static sqlite3_int64 submit_plain(sqlite3 *db, const Submission *job, Fault *fault){
  Query query;
  query_open(&query, db, SQL_submit_job, fault);
  bind_job(&query, job);
  query_int(&query, ":now", now_ms());
  return added(&query);
}

/* The options mean what the statement read_options says: its columns are the parameters of the insert. */
static sqlite3_int64 submit_with_options(sqlite3 *db, const Submission *job, Fault *fault){
  Query meaning, query;
  sqlite3_int64 id = 0, now = now_ms();
  query_open(&meaning, db, SQL_read_options, fault);
  query_text(&meaning, ":options", "{}");
  if( !is_null(job->options) ) query_value(&meaning, ":options", job->options);
  query_int(&meaning, ":now", now);
  if( query_step(&meaning) ){
    int each;
    sqlite3_value *key = 0;
    for(each=0; each<sqlite3_column_count(meaning.stmt); each++){
      if( sqlite3_stricmp(sqlite3_column_name(meaning.stmt, each), "unique_key")==0 ){
        key = sqlite3_column_value(meaning.stmt, each);
      }
    }
    if( !is_null(key) ){
      query_open(&query, db, SQL_live_job_with_key, fault);
      query_value(&query, ":kind", job->kind);
      query_value(&query, ":unique_key", key);
      if( query_step(&query) ) id = sqlite3_column_int64(query.stmt, 0);
      query_close(&query);
    }
    if( id==0 ){
      query_open(&query, db, SQL_submit_job_with_options, fault);
      bind_job(&query, job);
      query_int(&query, ":now", now);
      for(each=0; each<sqlite3_column_count(meaning.stmt) && fault->code==SQLITE_OK; each++){
        char name[64];
        sqlite3_snprintf((int)sizeof(name), name, ":%s", sqlite3_column_name(meaning.stmt, each));
        query_value(&query, name, sqlite3_column_value(meaning.stmt, each));
      }
      id = added(&query);
    }
  }
  query_close(&meaning);
  return id;
}

/* Adds a job and gives its id, or that of the live job with the same unique key; 0 after a fault. With a unique key
** there are two statements: the caller holds a transaction then. */
sqlite3_int64 job_submit(sqlite3 *db, const Submission *job, Fault *fault){
  sqlite3_int64 id;
  int spec = job->spec ? sqlite3_value_type(job->spec) : SQLITE_NULL;
  if( fault->code!=SQLITE_OK ) return 0;
  if( is_null(job->options) && sqlite3_value_type(job->kind)==SQLITE_TEXT
   && sqlite3_value_type(job->target)==SQLITE_TEXT && (spec==SQLITE_TEXT || spec==SQLITE_NULL) ){
    id = submit_plain(db, job, fault);
    if( fault->code==SQLITE_CONSTRAINT ){
      Fault plain = {SQLITE_OK, 0, 0};
      require_sound(db, job, &plain);
      if( plain.code!=SQLITE_OK ){
        fault_clear(fault);
        fault->code = plain.code;
        fault->words = plain.words;
      }
    }
  }else{
    require_sound(db, job, fault);
    id = submit_with_options(db, job, fault);
  }
  ordinary(fault);
  return fault->code==SQLITE_OK ? id : 0;
}

/* Cancels a job; gives 0 when it is unknown or over. */
int job_cancel(sqlite3 *db, sqlite3_int64 id, Fault *fault){
  Query query;
  query_open(&query, db, SQL_cancel_job, fault);
  query_int(&query, ":id", id);
  query_int(&query, ":now", now_ms());
  return added(&query)!=0;
}

/* Adds a job like a terminal one; gives 0 for an unknown one, and a fault for a live one. */
int job_retry(sqlite3 *db, sqlite3_int64 id, sqlite3_int64 *made, Fault *fault){
  Query query;
  query_open(&query, db, SQL_retry_job, fault);
  query_int(&query, ":id", id);
  query_int(&query, ":now", now_ms());
  *made = added(&query);
  if( *made==0 ){
    query_open(&query, db, SQL_job_status, fault);
    query_int(&query, ":id", id);
    if( query_step(&query) ){
      fault_say(fault, SQLITE_ERROR,
                "job %lld is not over yet; wait for it with ml_wait(%lld), or cancel it with ml_cancel(%lld)",
                id, id, id);
    }
    query_close(&query);
  }
  ordinary(fault);
  return *made!=0;
}

/* Deletes the terminal jobs of a JSON array of ids and gives how many were there; SQLITE_CONSTRAINT when one is live. */
int job_delete(sqlite3 *db, const char *ids, Fault *fault){
  Query query;
  int count = 0;
  query_open(&query, db, SQL_delete_jobs, fault);
  query_text(&query, ":ids", ids);
  while( query_step(&query) ) count++;
  query_close(&query);
  return count;
}

/* Finds terminal jobs that finished at or before a time, beyond an id. Gives how many, their ids as a JSON array to be
** freed, and the last of them. */
int job_old(sqlite3 *db, sqlite3_int64 before, sqlite3_int64 after, int count, char **ids, sqlite3_int64 *last,
            Fault *fault){
  sqlite3_str *list = sqlite3_str_new(db);
  Query query;
  int found = 0;
  query_open(&query, db, SQL_old_jobs, fault);
  query_int(&query, ":before", before);
  query_int(&query, ":after", after);
  query_int(&query, ":count", count);
  while( query_step(&query) ){
    *last = sqlite3_column_int64(query.stmt, 0);
    sqlite3_str_appendf(list, "%s%lld", found++ ? "," : "[", *last);
  }
  query_close(&query);
  sqlite3_str_appendall(list, found ? "]" : "[]");
  *ids = sqlite3_str_finish(list);
  if( *ids==0 ) fault_of(fault, db, SQLITE_NOMEM);
  return found;
}
