/*
** schema.c: makes the tables of the queue, and tells whether those under our names are ours. Python does the same in
** mldb/migrate.py; the rules and most of the words stand in sql/connection.sql.
*/
#include "ml_jobs.h"
#include "ml_sql.h"

SQLITE_EXTENSION_INIT3

#define WAL_ATTEMPTS 3000  /* of 10 ms */

static const char *const steps[] = {SCHEMA_STEPS};
#define STEPS ((int)(sizeof(steps)/sizeof(steps[0])))

/* Gives a database in memory with the tables that the first steps make, empty; NULL after a fault. */
sqlite3 *schema_blank(int count, Fault *fault){
  sqlite3 *db = 0;
  int each;
  int code;
  if( fault->code!=SQLITE_OK ) return 0;
  code = sqlite3_open_v2(":memory:", &db, SQLITE_OPEN_READWRITE|SQLITE_OPEN_CREATE|SQLITE_OPEN_NOMUTEX, 0);
  for(each=0; each<(count<0 ? STEPS : count) && code==SQLITE_OK; each++) code = sqlite3_exec(db, steps[each], 0, 0, 0);
  if( code!=SQLITE_OK ){
    fault_of(fault, db, code);
    sqlite3_close(db);
    db = 0;
  }
  return db;
}

/* Gives what the first steps make as a JSON array; NULL after a fault. */
static char *objects_of(int count, Fault *fault){
  sqlite3 *db = schema_blank(count, fault);
  Query query;
  char *objects = 0;
  if( db==0 ) return 0;
  query_open(&query, db, SQL_our_objects, fault);
  if( query_step(&query) ) objects = query_copy(&query, 0);
  query_close(&query);
  sqlite3_close(db);
  return objects;
}

/* Gives the number of the last step that a database has, 0 when it has no queue and may get one; then, or when something
** else stands under our names, `problem` says so and is to be freed. */
static int version_of(sqlite3 *db, char **problem, Fault *fault){
  char *first = objects_of(1, fault);
  char *all = objects_of(STEPS, fault);
  Query query;
  int version = 0;
  int is_free = 1;
  *problem = 0;
  query_open(&query, db, SQL_queue_problem, fault);
  query_text(&query, ":first", first);
  query_text(&query, ":objects", all);
  if( query_step(&query) ){
    *problem = query_copy(&query, 0);
    is_free = sqlite3_column_int(query.stmt, 1);
  }
  query_close(&query);
  if( *problem==0 ) version = (int)query_number(db, SQL_schema_version, fault);
  if( version>STEPS ){
    fault_say(fault, SQLITE_ERROR,
              "a newer mldb made this queue (its schema is %d, this mldb knows %d); upgrade mldb", version, STEPS);
  }
  if( *problem==0 && fault->code==SQLITE_OK ){
    char *objects = objects_of(version, fault);
    query_open(&query, db, SQL_schema_problem, fault);
    query_text(&query, ":objects", objects);
    if( query_step(&query) ) fault_say(fault, SQLITE_ERROR, "%s", sqlite3_column_text(query.stmt, 0));
    query_close(&query);
    sqlite3_free(objects);
  }
  if( *problem && !is_free ) fault_say(fault, SQLITE_ERROR, "%s", *problem);
  sqlite3_free(first);
  sqlite3_free(all);
  return version;
}

/* A fault unless the main database has the current schema and is in WAL mode. */
int schema_check(sqlite3 *db, Fault *fault){
  char *problem = 0;
  int version;
  if( fault->code!=SQLITE_OK ) return fault->code;
  version = version_of(db, &problem, fault);
  if( problem ){
    fault_say(fault, SQLITE_ERROR, "%s", problem);
  }else if( version<STEPS ){
    fault_say(fault, SQLITE_ERROR, "an older mldb made this queue; run SELECT ml_init() to bring it up to date");
  }
  sqlite3_free(problem);
  if( fault->code==SQLITE_OK ) require_wal(db, fault);
  return fault->code;
}

static void switch_to_wal(sqlite3 *db, Fault *fault){
  int attempt;
  for(attempt=1; fault->code==SQLITE_OK; attempt++){
    Query query;
    query_open(&query, db, SQL_use_wal, fault);
    if( query_step(&query) ){
      const char *mode = (const char*)sqlite3_column_text(query.stmt, 0);
      if( sqlite3_stricmp(mode, "wal")!=0 ){
        fault_say(fault, SQLITE_ERROR,
                  "the database cannot use WAL (its journal mode stays %s); keep it on a local disk", mode);
      }
    }
    query_close(&query);
    if( fault->code!=SQLITE_BUSY ) return;
    /* SQLite gives up at once here when two clients switch together, whatever the busy timeout is. */
    fault_clear(fault);
    if( attempt>=WAL_ATTEMPTS ){
      fault_say(fault, SQLITE_BUSY,
                "the database is locked by another connection; close it and run SELECT ml_init()");
    }
    sqlite3_sleep(10);
  }
}

/* Applies a step unless somebody was faster; gives 1 when it did. */
static int apply(sqlite3 *db, int step, Fault *fault){
  char *problem = 0;
  int done = 0;
  if( query_run(db, SQL_begin_writing, fault)!=SQLITE_OK ) return 0;
  if( version_of(db, &problem, fault)<=step && fault->code==SQLITE_OK ){
    fault_of(fault, db, sqlite3_exec(db, steps[step], 0, 0, 0));
    if( query_number(db, SQL_schema_version, fault)!=step+1 ){
      fault_say(fault, SQLITE_ERROR, "step %d of the schema does not record itself", step+1);
    }
    done = fault->code==SQLITE_OK;
  }
  sqlite3_free(problem);
  query_run(db, SQL_commit, fault);
  if( !sqlite3_get_autocommit(db) ) sqlite3_exec(db, SQL_rollback, 0, 0, 0);
  return done && fault->code==SQLITE_OK;
}

/* Switches the host's main database to WAL and applies the steps that it lacks; gives 1 when that did something. Works on
** a connection of its own, which waits for other clients whatever the host's does. */
int schema_prepare(Surface *surface, Fault *fault){
  sqlite3 *host = surface->db;
  const char *path = main_file(host, fault);
  sqlite3 *db;
  char *problem = 0;
  int barred, version, wal, done = 0;
  require_shared(host, fault);
  barred = is_barred(host, fault);
  db = open_beside(host, barred ? SQLITE_OPEN_READONLY : SQLITE_OPEN_READWRITE|SQLITE_OPEN_CREATE, fault);
  if( db==0 ) return 0;
  version = version_of(db, &problem, fault);
  sqlite3_free(problem);
  wal = is_wal(db, fault);
  if( fault->code==SQLITE_OK && !(wal && version==STEPS) ){
    if( barred ){
      fault_say(fault, SQLITE_READONLY, "%s is open read-only here and has no queue yet; run: mldb init %s", path, path);
    }else if( !sqlite3_get_autocommit(host) ){
      fault_say(fault, SQLITE_ERROR, "the queue cannot be set up inside a transaction; COMMIT or ROLLBACK first");
    }
    if( !wal && fault->code==SQLITE_OK ){
      switch_to_wal(db, fault);
      done = 1;
    }
    for(; version<STEPS && fault->code==SQLITE_OK; version++) done |= apply(db, version, fault);
    /* The host's connection notices the new journal mode when it reads. */
    if( fault->code==SQLITE_OK ) query_run(host, SQL_read_schema, fault);
  }
  sqlite3_close(db);
  if( fault->code==SQLITE_OK ) surface->is_ready = 1;
  return done;
}
